"""A function is called in a thread of its own, and its result or error reaches the caller."""

import asyncio
import threading

import pytest

from vecmill.values.own_thread import call_in_thread


async def test_a_thread_is_free_while_all_threads_of_the_executor_are_busy() -> None:
    loop, released = asyncio.get_running_loop(), threading.Event()
    busy = [loop.run_in_executor(None, released.wait) for _ in range(64)]
    try:
        name = await call_in_thread("a-thread", lambda: threading.current_thread().name)
    finally:
        released.set()
        await asyncio.gather(*busy)
    assert name == "a-thread"


async def test_an_error_in_the_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await call_in_thread("a-thread", lambda: 1 // 0)
