"""Waiting for a task that others may wait for too, and that goes on if one of them is cancelled.

`asyncio.shield` does this. Since Python 3.14 it also reports the error of a task that nobody waits for any
more to the event loop, which logs it. Such an error is nobody's.
"""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


async def share_task(task: "asyncio.Future[T]") -> T:
    """Return the result of a task, or raise its error. Cancelling the call leaves the task running."""
    task.add_done_callback(_take_error)
    await asyncio.wait((task,))
    return task.result()


def _take_error(task: "asyncio.Future[Any]") -> None:
    """Mark the error of a task as seen, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
