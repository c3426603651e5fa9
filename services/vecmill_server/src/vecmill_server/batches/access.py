"""The store from the event loop: in a thread of its own, one call after the other."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from vecmill.errors import NotReady
from vecmill_server.batches.store import Store

T = TypeVar("T")


class StoreAccess:
    """Opens the store, calls it and closes it, all in one thread."""

    def __init__(self, root: Path, *, max_open: int) -> None:
        self._root = root
        self._max_open = max_open
        self._thread: ThreadPoolExecutor | None = None
        self._store: Store | None = None

    async def open(self) -> None:
        """Raises `InvalidConfig`, as `Store` does."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vecmill-batches")
        loop = asyncio.get_running_loop()
        self._store = await loop.run_in_executor(self._thread, self._make)

    async def close(self) -> None:
        """After the call that is under way. Twice is fine."""
        if self._store is not None:
            store, self._store = self._store, None
            await asyncio.get_running_loop().run_in_executor(self._thread, store.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    @property
    def store(self) -> Store:
        """For its folder alone, whose methods any thread may call. Raises `NotReady`."""
        if self._store is None:
            raise NotReady("The batches are not open yet, or no more. Try again in a moment.")
        return self._store

    async def call(self, function: Callable[[Store], T]) -> T:
        """`function(store)`, in the store's thread. A caller that is cancelled does not stop it.

        Raises `NotReady`, and what `function` does.
        """
        store = self.store
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, store)

    def _make(self) -> Store:
        return Store(self._root, max_open=self._max_open)
