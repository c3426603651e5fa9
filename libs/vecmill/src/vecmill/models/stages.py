"""What happens between the encoder's last hidden state and finished rows, one dataclass a stage.

A model's stages come in order, as its `modules.json` lists them. `graphs.stages` builds them.
"""

from dataclasses import dataclass
from enum import StrEnum


class PoolingMode(StrEnum):
    """How token rows become one row. The values are those of sentence-transformers."""

    CLS = "cls"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Pooling:
    """Token rows become one row; several modes are joined side by side.

    Without `include_prompt` the prompt's tokens are left out.
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows get unit length."""


Stage = Pooling | Normalize
"""Everything that `graphs.stages` can build."""
