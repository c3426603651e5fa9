"""The turns of owners at the reading of input files.

A file can have any number of lines that take long to check or to parse, and the thread that does it holds the
interpreter lock for most of the time. Files are therefore read in slices (`jsonl`), one at a time. An owner
with many or large files waits longer for its own slices, but delays another owner by one slice only.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from vecmill_server.base.json_io import LargeJson

T = TypeVar("T")


class SliceTurns:
    """The work on slices: one at a time, in a thread. The owners take turns. Use from one event loop."""

    def __init__(self) -> None:
        self._documents = LargeJson()
        # One slice of each owner waits for its turn, so that turns in order of arrival are turns of owners.
        self._owners: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, owner: str, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread when it is the turn of `owner`.

        Cancelling the caller does not stop a call that has begun.
        """
        async with self._owners[owner]:
            return await self._documents.run(True, function)
