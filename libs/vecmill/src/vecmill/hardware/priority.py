"""Threads of low priority, whose work leaves the cores to others.

A thread cannot raise its priority again without special rights, and the threads that it starts have its
priority. So such work gets a thread of its own, and opens nothing there that computes later.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from vecmill.hardware.system_calls import add_niceness
from vecmill.values.shared_task import share_task

T = TypeVar("T")

# Added to the niceness of the process. Linux then gives the thread a tenth of a core that it shares.
NICENESS = 10


async def call_with_low_priority(function: Callable[[], T], name: str, niceness: int = NICENESS) -> T:
    """Return the result of `function`, called in a thread of low priority. Cancelling leaves it running."""
    result: Future[T] = Future()

    def work() -> None:
        add_niceness(niceness)
        try:
            result.set_result(function())
        except BaseException as error:  # the caller gets it
            result.set_exception(error)

    # A daemon, so that the end of the process does not wait for it.
    threading.Thread(target=work, name=name, daemon=True).start()
    return await share_task(asyncio.wrap_future(result))
