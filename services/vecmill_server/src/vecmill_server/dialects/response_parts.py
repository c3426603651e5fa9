"""Parts of responses that several APIs share: OpenAI's envelope, labels and tokens."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from vecmill.results import ClassifyResult, Tokens
from vecmill.values.aliases import IntArray
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects.truncated_inputs import with_truncated

USAGE = {"prompt_tokens": int, "total_tokens": int, "completion_tokens": int}


def write_usage(tokens: int) -> dict[str, int]:
    """Return the token counts of a request in OpenAI's format."""
    return {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}


def describe_envelope(kind: str, **data: Any) -> Any:
    """Return the schema of a response with `data` in OpenAI's or vLLM's envelope.

    `kind` is the value of `object`.
    """
    return with_truncated({"id": str, "object": kind, "created": int, "model": str, "usage": USAGE, **data})


LABEL = Component("Label", {"label": str, "score": float})


def write_labels(result: ClassifyResult, *, last_first: bool = False) -> list[list[dict[str, Any]]]:
    """Write all labels of each input, the best first; of equal scores the first label, or the last."""
    step = -1 if last_first else 1
    labels = result.labels[::step]
    return [
        [
            {"score": float(scores[place]), "label": labels[place]}
            for place in (-scores).argsort(kind="stable").tolist()
        ]
        for scores in result.scores[:, ::step]
    ]


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
