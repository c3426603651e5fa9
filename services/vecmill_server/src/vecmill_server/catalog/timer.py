"""Timers on the event loop, which tests decide in its place."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that can be stopped."""

    def cancel(self) -> None:
        """Stop the timer."""


# Calls a function once after so many seconds, on the event loop.
Timer = Callable[[float, Callable[[], None]], TimerHandle]


def call_later(delay_s: float, callback: Callable[[], None]) -> TimerHandle:
    """Call `callback` after `delay_s` seconds, by the running event loop."""
    return asyncio.get_running_loop().call_later(delay_s, callback)
