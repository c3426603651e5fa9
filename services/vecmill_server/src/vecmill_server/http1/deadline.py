"""Deadlines that cost little to set: a timer of the event loop that is started once for many deadlines."""

import asyncio
from collections.abc import Callable


class Deadline:
    """One deadline, which calls `on_expiry` when it passes.

    Nearly every deadline is cleared or moved before it passes. Therefore the timer of the event loop stays
    when the deadline changes, and looks at the deadline when it fires.
    """

    __slots__ = ("_at", "_loop", "_on_expiry", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expiry: Callable[[], None]) -> None:
        self._loop = loop
        self._on_expiry = on_expiry
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self._at = at = self._loop.time() + seconds
        if self._timer is None:
            self._start(at, seconds)
        elif at < self._timer_at:
            self._timer.cancel()
            self._start(at, seconds)

    def clear(self) -> None:
        """Remove the deadline."""
        self._at = None

    def close(self) -> None:
        """Remove the deadline and the timer."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, at: float, seconds: float) -> None:
        self._timer_at = at
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._at is None:
            return
        left_s = self._at - self._loop.time()
        if left_s > 0.001:
            self._start(self._at, left_s)
            return
        self._at = None
        self._on_expiry()
