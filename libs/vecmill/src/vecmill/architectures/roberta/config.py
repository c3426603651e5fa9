"""Reads the `config.json` of RoBERTa, XLM-RoBERTa and CamemBERT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.bert.config import BertConfig
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import read_token_id, refuse_unless, size


@dataclass(frozen=True, slots=True, kw_only=True)
class RobertaConfig(BertConfig):
    """The settings of RoBERTa: those of BERT, with positions counted from `pad_token_id` + 1."""

    vocab_size: int = size(50_265)
    pad_token_id: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        roberta = cls._read(config, pad_token_id=_read_padding(config))
        if roberta.max_input_tokens < 1:
            raise CorruptModel(
                f"config.json: max_position_embeddings {roberta.max_position_embeddings} leaves no position "
                f"after pad_token_id {roberta.pad_token_id}."
            )
        return roberta

    @property
    def max_input_tokens(self) -> int:
        """The number of positions after `pad_token_id`."""
        return self.max_position_embeddings - self.pad_token_id - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The settings of XLM-RoBERTa and CamemBERT: RoBERTa with other defaults."""

    vocab_size: int = size(30_522)


def _read_padding(config: Mapping[str, Any]) -> int:
    token_id = read_token_id(config, "pad_token_id", 1)
    if token_id is None or token_id < 0:
        raise CorruptModel(
            "config.json: pad_token_id must be a token id, because positions are counted from it."
        )
    return token_id
