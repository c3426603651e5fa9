"""What is known of an architecture that has no graph here, and that transformers runs.

Families call the same thing by different names; those below are the ones that transformers 5 itself maps onto
`vocab_size`, `hidden_size` and `max_position_embeddings` (`attribute_map` of its configurations).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import UnsupportedModel
from vecmill.models.settings import read_size

_VOCABULARY = ("vocab_size", "n_words")
_WIDTH = ("hidden_size", "d_model", "dim", "n_embd", "emb_dim")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len")


@dataclass(frozen=True, slots=True)
class LibraryConfig:
    """The sizes that are needed before the model is loaded. `runs_code`: its class comes with the model."""

    vocab_size: int
    hidden_size: int
    max_input_tokens: int | None
    runs_code: bool

    @classmethod
    def read(cls, config: Mapping[str, Any], where: str, *, runs_code: bool) -> Self:
        """Take the sizes from `config.json`, which `where` names in errors.

        Raises `UnsupportedModel` if a size has a name that is not known, `CorruptModel` if it is none.
        """
        positions = _find_key(config, _POSITIONS)
        # Some write -1 where positions are relative.
        is_bounded = positions is not None and config[positions] not in (None, -1, 0)
        return cls(
            vocab_size=_read_size(config, _VOCABULARY, where),
            hidden_size=_read_size(config, _WIDTH, where),
            max_input_tokens=read_size(config, positions, 0) if positions and is_bounded else None,
            runs_code=runs_code,
        )


def _find_key(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in config), None)


def _read_size(config: Mapping[str, Any], names: tuple[str, ...], where: str) -> int:
    key = _find_key(config, names)
    if key is None:
        raise UnsupportedModel(
            f"{where}: model_type {config.get('model_type')!r} has no graph here, and none of "
            f"{', '.join(names)} is there, which transformers' classes name a size by."
        )
    return read_size(config, key, 0)
