"""Calls in threads of their own, for which the threads of the event loop's executor may be too busy."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def call_in_thread(name: str, function: Callable[[], T]) -> T:
    """Return `function()`, called in a thread of its own with this name. Cancelling leaves it running.

    The threads of the event loop's executor may all be busy for minutes, for example with loading models.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # so that it can be set when nobody waits any more

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    # A daemon, so that the end of the process does not wait for it.
    threading.Thread(target=call, name=name, daemon=True).start()
    return await asyncio.wrap_future(result)
