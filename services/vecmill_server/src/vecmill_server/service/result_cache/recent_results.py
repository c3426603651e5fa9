"""The results in memory: the most recently used ones, within a number of bytes."""

from collections import OrderedDict

from vecmill.values.result_cache import KeptEmbedding

# What Python needs for one result beside its numbers: its key, its entry, and the objects around the numbers.
RESULT_BYTES = 600


class RecentResults:
    """Results by key. The least recently used ones are dropped. Use from one thread."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        self._most_bytes = most_bytes
        self._results: OrderedDict[bytes, KeptEmbedding] = OrderedDict()

    def find(self, key: bytes) -> KeptEmbedding | None:
        """Return the result of a key, which is then the most recently used one."""
        result = self._results.get(key)
        if result is not None:
            self._results.move_to_end(key)
        return result

    def add(self, key: bytes, result: KeptEmbedding) -> None:
        """Keep a result, and drop others if there is no room."""
        size = _size(result)
        if size > self._most_bytes:
            return
        before = self._results.pop(key, None)
        self.size += size - (0 if before is None else _size(before))
        self._results[key] = result
        while self.size > self._most_bytes:
            _, dropped = self._results.popitem(last=False)
            self.size -= _size(dropped)


def _size(result: KeptEmbedding) -> int:
    return result.values.nbytes + RESULT_BYTES
