"""The cache of results of a server, in memory and on disk, which its models share."""

from collections.abc import Mapping, Sequence

from vecmill.values.result_cache import KeptEmbedding
from vecmill_server.base.settings import ServerSettings
from vecmill_server.service.result_cache.recent_results import RecentResults
from vecmill_server.service.result_cache.stored_results import OnDrop, StoredResults


class ServerResults:
    """The recent results in memory, and all results on disk unless `stored` is `None`.

    Use from one event loop.
    """

    def __init__(self, recent: RecentResults, stored: StoredResults | None = None) -> None:
        self._recent = recent
        self._stored = stored

    @property
    def has_disk(self) -> bool:
        """Whether there are results on disk."""
        return self._stored is not None

    @property
    def memory_bytes(self) -> int:
        """The bytes of the results in memory."""
        return self._recent.size

    @property
    def disk_bytes(self) -> int:
        """The bytes of the file of results."""
        return 0 if self._stored is None else self._stored.size

    def find(self, key: bytes) -> KeptEmbedding | None:
        """Return the result of a key in memory."""
        return self._recent.find(key)

    async def read(self, keys: Sequence[bytes]) -> Sequence[KeptEmbedding | None]:
        """Return the result of each key on disk. Those that are found are in memory then too."""
        if self._stored is None:
            return [None] * len(keys)
        found = await self._stored.read(keys)
        for key, result in zip(keys, found, strict=True):
            if result is not None:
                self._recent.add(key, result)
        return found

    def keep(self, results: Mapping[bytes, KeptEmbedding]) -> None:
        """Keep results in memory, and on disk a little later."""
        for key, result in results.items():
            self._recent.add(key, result)
        if self._stored is not None:
            self._stored.write(results)

    async def close(self) -> None:
        """Write the results that wait to be written, for a few seconds at most."""
        if self._stored is not None:
            await self._stored.close()


def open_results(settings: ServerSettings, on_drop: OnDrop) -> ServerResults:
    """Return the cache of results that the settings ask for."""
    folder, stored = settings.result_cache_dir, None
    if folder is not None:
        stored = StoredResults(folder, settings.result_cache_disk_bytes, on_drop)
    return ServerResults(RecentResults(settings.kept_memory_bytes), stored)
