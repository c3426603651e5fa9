"""The writing of tokens in responses: their parts of the text, and their places in bytes."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from vecmill.results import Tokens
from vecmill.values.aliases import IntArray


class Written(Sequence[Any]):
    """A sequence whose items `write` makes when they are encoded, since all at once take much memory.

    Not a dataclass, which orjson would write by its fields.
    """

    def __init__(self, count: int, write: Callable[[int], Any]) -> None:
        self._count = count
        self._write = write

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._write(position) for position in range(*index.indices(self._count))]
        return self._write(range(self._count)[index])


def text_pieces(tokens: Tokens, text: str) -> Sequence[str]:
    """Return for each token its part of `text`. The parts, joined, are `text`; some may be empty.

    A part begins where the part before it ends, so spaces belong to the token that follows. Of several
    tokens for one character, the first has the character. Special tokens have empty parts.
    """
    placed = np.flatnonzero(tokens.starts >= 0)
    if not len(placed):
        return [""] * len(tokens)
    ends = np.maximum.accumulate(np.where(tokens.starts >= 0, tokens.ends, 0))
    ends[placed[-1] :] = len(text)
    starts = np.concatenate([[0], ends[:-1]])
    return Written(len(tokens), lambda index: text[starts[index] : ends[index]])


def utf8_places(text: str, places: IntArray) -> IntArray:
    """Convert places in `text` from characters to bytes of UTF-8."""
    if text.isascii():
        return places
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    sizes = (codes > 0x7F).astype(np.uint8)
    sizes += codes > 0x7FF
    sizes += codes > 0xFFFF
    sizes += 1
    before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return before[places]
