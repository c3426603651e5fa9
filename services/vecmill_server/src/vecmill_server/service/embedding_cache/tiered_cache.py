"""The embedding cache of a server, in memory and on disk, which its models share."""

from collections.abc import Mapping, Sequence

from vecmill.values.embedding_cache import CachedEmbedding
from vecmill_server.base.settings import ServerSettings
from vecmill_server.service.embedding_cache.disk_tier import DiskTier, OnDrop
from vecmill_server.service.embedding_cache.memory_tier import MemoryTier


class TieredCache:
    """The recent embeddings in memory, and all embeddings on disk unless `stored` is `None`.

    Use from one event loop.
    """

    def __init__(self, recent: MemoryTier, stored: DiskTier | None = None) -> None:
        self._recent = recent
        self._stored = stored

    @property
    def has_disk(self) -> bool:
        """Whether there are embeddings on disk."""
        return self._stored is not None

    @property
    def memory_bytes(self) -> int:
        """The bytes of the embeddings in memory."""
        return self._recent.size

    @property
    def disk_bytes(self) -> int:
        """The bytes of the file of embeddings."""
        return 0 if self._stored is None else self._stored.size

    def find(self, key: bytes) -> CachedEmbedding | None:
        """Return the embedding of a key in memory."""
        return self._recent.find(key)

    async def read(self, keys: Sequence[bytes]) -> Sequence[CachedEmbedding | None]:
        """Return the embedding of each key on disk. Those that are found are in memory then too."""
        if self._stored is None:
            return [None] * len(keys)
        found = await self._stored.read(keys)
        for key, embedding in zip(keys, found, strict=True):
            if embedding is not None:
                self._recent.add(key, embedding)
        return found

    def keep(self, embeddings: Mapping[bytes, CachedEmbedding]) -> None:
        """Keep embeddings in memory, and on disk a little later."""
        for key, embedding in embeddings.items():
            self._recent.add(key, embedding)
        if self._stored is not None:
            self._stored.write(embeddings)

    async def close(self) -> None:
        """Write the embeddings that wait to be written, for a few seconds at most."""
        if self._stored is not None:
            await self._stored.close()


def open_cache(settings: ServerSettings, on_drop: OnDrop) -> TieredCache:
    """Return the embedding cache that the settings ask for."""
    folder, stored = settings.result_cache_dir, None
    if folder is not None:
        stored = DiskTier(folder, settings.result_cache_disk_bytes, on_drop)
    return TieredCache(MemoryTier(settings.cache_memory_bytes), stored)
