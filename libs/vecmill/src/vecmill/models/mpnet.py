"""What the `config.json` of MPNet says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.bert import BertConfig, read_bert
from vecmill.models.settings import read_size

PADDING = 1  # transformers' `MPNetEmbeddings` counts positions from here, whatever `pad_token_id` says
BUCKETS = 32  # and its encoder uses that many, whatever `relative_attention_num_buckets` says


@dataclass(frozen=True, slots=True)
class MPNetConfig(BertConfig):
    """As BERT, without token types; `relative_attention_num_buckets` are the rows of the relative bias."""

    relative_attention_num_buckets: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        stored = read_size(config, "relative_attention_num_buckets", BUCKETS)
        if stored < BUCKETS:
            raise UnsupportedModel(
                f"config.json: relative_attention_num_buckets {stored} is not supported; "
                f"at least {BUCKETS} are."
            )
        mpnet = cls(**read_bert(config, vocab_size=30527), relative_attention_num_buckets=stored)
        if mpnet.max_input_tokens < 1:
            raise CorruptModel(f"config.json: max_position_embeddings must be at least {PADDING + 2}.")
        return mpnet

    @property
    def max_input_tokens(self) -> int:
        """The positions that are left after those up to `PADDING`."""
        return self.max_position_embeddings - PADDING - 1
