"""Threads of low priority, whose work leaves the cores to others.

A thread cannot raise its priority again without special rights, and the threads that it starts have its
priority. So such work gets a thread of its own, and opens nothing there that computes later.
"""

from collections.abc import Callable
from typing import TypeVar

from vecmill.hardware.system_calls import add_niceness
from vecmill.values.own_thread import call_in_thread

T = TypeVar("T")

# Added to the niceness of the process. Linux then gives the thread a tenth of a core that it shares.
NICENESS = 10


async def call_with_low_priority(function: Callable[[], T], name: str, niceness: int = NICENESS) -> T:
    """Return the result of `function`, called in a thread of low priority. Cancelling leaves it running."""

    def work() -> T:
        add_niceness(niceness)
        return function()

    return await call_in_thread(name, work)
