"""Reads the sizes of an architecture that has no graph here, and that transformers runs.

The key names below are those that transformers 5 maps to `vocab_size`, `hidden_size` and
`max_position_embeddings` (`attribute_map` of its configurations).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.encoder_config import EncoderConfig
from vecmill.values.messages import show

_VOCABULARY = ("vocab_size", "n_words")
_WIDTH = ("hidden_size", "d_model", "dim", "n_embd", "emb_dim")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersConfig(EncoderConfig):
    """The sizes that are needed before the model is loaded. With `runs_code` the model has its own class."""

    positions: int | None
    type_vocab_size: int
    runs_code: bool

    @classmethod
    def read(cls, config: Mapping[str, Any], path: str, *, runs_code: bool) -> Self:
        """Read the sizes of a `config.json`; `path` is its path for error messages.

        Raises `UnsupportedModel` if no known key has a size, `CorruptModel` if a value is not a size.
        """
        positions = _find_key(config, _POSITIONS)
        # Some models with relative positions write -1.
        is_bounded = positions is not None and config[positions] not in (None, -1, 0)
        return cls(
            vocab_size=_read_size(config, _VOCABULARY, path),
            hidden_size=_read_size(config, _WIDTH, path),
            positions=read_size(config, positions, 0, most=MOST_TOKENS) if positions and is_bounded else None,
            type_vocab_size=read_size(config, "type_vocab_size", 0, least=0),
            runs_code=runs_code,
        )

    @property
    def max_input_tokens(self) -> int | None:
        """The number of positions, if `config.json` has it."""
        return self.positions

    @property
    def token_types(self) -> int:
        """The `type_vocab_size`, if `config.json` has it."""
        return self.type_vocab_size


def _find_key(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in config), None)


def _read_size(config: Mapping[str, Any], names: tuple[str, ...], path: str) -> int:
    key = _find_key(config, names)
    if key is None:
        raise UnsupportedModel(
            f"{path}: model_type {show(config.get('model_type'))} has no built-in graph, and config.json has "
            f"none of {', '.join(names)}, one of which must give a size."
        )
    return read_size(config, key, 0)
