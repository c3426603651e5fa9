"""The embedding cache, as the operations see it: the protocol, and the cached embedding of a text.

A key is a digest of everything that an embedding depends on, and of its owner (`operations.cache_keys`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vecmill.values.aliases import FloatArray


@dataclass(frozen=True, slots=True)
class CachedEmbedding:
    """The dense embedding of one text, and the counts that its answer reports.

    `values` (1, dim) float32 own their memory and are not written to. `length` is the length of the embedding
    before the model's own normalisation, `None` if the model does not normalise. `cut_tokens` tokens were
    cut off the text; unless `is_exact`, at least so many.
    """

    values: FloatArray
    length: float | None
    token_count: int
    cut_tokens: int
    is_exact: bool = True

    @property
    def is_cut(self) -> bool:
        """Whether the text was cut."""
        return self.cut_tokens > 0 or not self.is_exact


class EmbeddingCache(Protocol):
    """A cache of embeddings by key. Use from one event loop. Its faults are its own: no method raises."""

    @property
    def has_disk(self) -> bool:
        """Whether `read` may find what `find` does not."""
        ...

    def find(self, key: bytes) -> CachedEmbedding | None:
        """Return what memory has for a key. Takes almost no time."""
        ...

    async def read(self, keys: Sequence[bytes]) -> Sequence[CachedEmbedding | None]:
        """Return what the disk has for each key. A disk that is slow has nothing."""
        ...

    def keep(self, embeddings: Mapping[bytes, CachedEmbedding]) -> None:
        """Keep new embeddings. Does not wait for the disk."""
        ...
