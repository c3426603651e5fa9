"""The thread that owns the store of files and batches."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from vecmill.errors import NotReady
from vecmill_server.batches.objects import StoreLimits
from vecmill_server.batches.store import Store

T = TypeVar("T")


class StoreThread:
    """The owner of the store: it opens, calls and closes the store in one thread."""

    def __init__(self, root: Path, limits: StoreLimits) -> None:
        self._root = root
        self._limits = limits
        self._thread: ThreadPoolExecutor | None = None
        self._store: Store | None = None

    async def open(self) -> None:
        """Open the store. Raises `InvalidConfig`."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vecmill-batches")
        loop = asyncio.get_running_loop()
        self._store = await loop.run_in_executor(self._thread, Store, self._root, self._limits)

    async def close(self) -> None:
        """Close the store after the current call. Can be called twice."""
        if self._store is not None:
            store, self._store = self._store, None
            await asyncio.get_running_loop().run_in_executor(self._thread, store.close)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    @property
    def is_open(self) -> bool:
        """True between `open` and `close`."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The store, for access to its folder from any thread. Raises `NotReady`."""
        if self._store is None:
            raise NotReady("Batches are unavailable while the server starts or stops. Try again in a moment.")
        return self._store

    async def call(self, function: Callable[[Store], T]) -> T:
        """Return `function(store)`, run in the store's thread. Cancelling the caller does not stop it.

        Raises `NotReady`, and the errors of `function`.
        """
        store = self.store
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, store)

    def post(self, function: Callable[[Store], None]) -> None:
        """Run `function(store)` in the store's thread after the calls before it. Returns at once."""
        if self._store is not None and self._thread is not None:
            self._thread.submit(function, self._store)
