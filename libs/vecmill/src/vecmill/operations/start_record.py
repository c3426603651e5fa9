"""What became of the starts of a mill, for the calls that find no loaded model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vecmill.errors import NotReady, SetupError, still_loading


class StartRecord:
    """The starts of one mill, one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._has_begun = False
        self._failure: SetupError | None = None

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Wait for other starts, and record how this one ends."""
        async with self._lock:
            self._has_begun, self._failure = True, None
            try:
                yield
            except SetupError as error:
                self._failure = error
                raise

    def not_ready(self) -> NotReady:
        """Return the error of a call that needs what a start loads."""
        if self._failure is not None:
            return NotReady(f"The model was not loaded. {self._failure.message}")
        if not self._has_begun:
            return NotReady("The model is not loaded. Start the mill: use `async with`, or call `start`.")
        return still_loading()
