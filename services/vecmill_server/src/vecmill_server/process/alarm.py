"""A sleep on the event loop that threads and signal handlers can end."""

import asyncio
from contextlib import suppress


class Alarm:
    """The sleep of one task on `loop`, which `ring` ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def ring(self) -> None:
        """End the sleep, or the next one. Safe in any thread, and in a signal handler."""
        with suppress(RuntimeError):  # the loop is closed, and nobody sleeps
            self._loop.call_soon_threadsafe(self._event.set)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as the alarm rings."""
        timer = self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
        self._event.clear()
