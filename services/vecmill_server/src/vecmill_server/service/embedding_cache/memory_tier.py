"""The embedding cache in memory: the most recently used ones, within a number of bytes."""

from collections import OrderedDict

from vecmill.values.embedding_cache import CachedEmbedding

# What Python needs for one embedding beside its numbers: its key, its entry, and the objects around them.
ENTRY_BYTES = 600


class MemoryTier:
    """Embeddings by key. The least recently used ones are dropped. Use from one thread."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        self._most_bytes = most_bytes
        self._embeddings: OrderedDict[bytes, CachedEmbedding] = OrderedDict()

    def find(self, key: bytes) -> CachedEmbedding | None:
        """Return the embedding of a key, which is then the most recently used one."""
        embedding = self._embeddings.get(key)
        if embedding is not None:
            self._embeddings.move_to_end(key)
        return embedding

    def add(self, key: bytes, embedding: CachedEmbedding) -> None:
        """Keep an embedding, and drop others if there is no room."""
        size = _size(embedding)
        if size > self._most_bytes:
            return
        before = self._embeddings.pop(key, None)
        self.size += size - (0 if before is None else _size(before))
        self._embeddings[key] = embedding
        while self.size > self._most_bytes:
            _, dropped = self._embeddings.popitem(last=False)
            self.size -= _size(dropped)


def _size(embedding: CachedEmbedding) -> int:
    return embedding.values.nbytes + ENTRY_BYTES
