"""What embeds texts: a mill in this process, or a server. Here is what the pipeline knows of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vecmill.reading import Purpose
from vecmill.rows import RowKind
from vecmill.types import JsonValue

PROBE = "vecmill"

Rows = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Treatment:
    """How texts are embedded, as `Mill.embed` takes it, and how their rows are written."""

    prompt_name: str | None = None
    purpose: Purpose | None = None
    dimensions: int | None = None
    kind: RowKind = RowKind.FLOAT


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows, (texts, dim) of the kind asked for, in the order of the texts, and how many tokens were read.

    There are none for the texts at the places `left_out`, which cannot be embedded.
    """

    rows: Rows
    tokens: int
    left_out: Sequence[int] = ()


class Embedder(Protocol):
    """Embeds texts, all in the same way, any number of calls at a time; leaves none out.

    `identity` is what the rows depend on beside their texts; `dim` how many numbers each has, or bytes of
    bits, each of `dtype`; `call_texts` how many texts a call should have.
    """

    @property
    def identity(self) -> Mapping[str, JsonValue]: ...

    @property
    def dim(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    @property
    def call_texts(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embed some texts.

        Raises `RequestError` or `EngineError` if one of them is at fault, which may be found by embedding
        them one by one, and other `VecmillError`s if it is no use to go on.
        """
        ...
