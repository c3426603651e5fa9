"""Which architecture families there are, and what their `config.json` must tell.

A family has two modules: here one that reads its settings, in `graphs` one that builds it.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

from vecmill.errors import UnsupportedModel

# transformers' `model_type` -> the class that reads its `config.json`.
ENCODERS: Mapping[str, str] = MappingProxyType({"bert": "vecmill.models.bert:BertConfig"})


class EncoderConfig(Protocol):
    """What is needed of every family's settings."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """The longest input that the encoder can position, special tokens included; `None` for any."""
        ...


class EncoderConfigClass(Protocol):
    """What the table names."""

    def read(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Take what is needed; raises `CorruptModel` or `UnsupportedModel` and names the key."""
        ...


def read_encoder(config: Mapping[str, Any], where: str) -> EncoderConfig:
    """The settings of the encoder in `config`. Raises `UnsupportedModel` for an unknown family.

    `where` names the file in errors.
    """
    architecture = str(config.get("model_type"))
    if architecture not in ENCODERS:
        raise UnsupportedModel(
            f"{where}: model_type {architecture!r} is not supported yet; "
            f"supported: {', '.join(sorted(ENCODERS))}."
        )
    module_name, _, class_name = ENCODERS[architecture].partition(":")
    reader = cast(EncoderConfigClass, getattr(importlib.import_module(module_name), class_name))
    return reader.read(config)
