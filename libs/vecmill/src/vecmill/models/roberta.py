"""What the `config.json` of RoBERTa says, and of its multilingual and French siblings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel
from vecmill.models.bert import BertConfig, read_bert
from vecmill.models.settings import read_token_id, refuse_unless


@dataclass(frozen=True, slots=True)
class RobertaConfig(BertConfig):
    """As BERT, but positions are counted from the one after `pad_token_id`."""

    pad_token_id: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from the `config.json` of a RoBERTa model. Raises as `BertConfig.read`."""
        return cls._read(config, vocab_size=50265)

    @classmethod
    def _read(cls, config: Mapping[str, Any], **defaults: Any) -> Self:
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        roberta = cls(**read_bert(config, **defaults), pad_token_id=_read_padding(config))
        if roberta.max_input_tokens < 1:
            raise CorruptModel(
                f"config.json: max_position_embeddings {roberta.max_position_embeddings} leaves no position "
                f"after pad_token_id {roberta.pad_token_id}."
            )
        return roberta

    @property
    def max_input_tokens(self) -> int:
        """The positions that are left after those up to `pad_token_id`."""
        return self.max_position_embeddings - self.pad_token_id - 1


@dataclass(frozen=True, slots=True)
class XlmRobertaConfig(RobertaConfig):
    """XLM-RoBERTa and CamemBERT: RoBERTa with other defaults."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        return cls._read(config)


def _read_padding(config: Mapping[str, Any]) -> int:
    token_id = read_token_id(config, "pad_token_id", 1)
    if token_id is None or token_id < 0:
        raise CorruptModel("config.json: pad_token_id must be a token: positions are counted from it.")
    return token_id
