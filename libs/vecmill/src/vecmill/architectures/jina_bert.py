"""Reads the `config.json` of JinaBERT (version 2): BERT with linear attention biases and gated units.

Both of its published codes have the `model_type` "bert": jina-bert-implementation and
jina-bert-v2-qk-post-norm. The names of the tensors tell which of them a model is of.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.bert import BertConfig
from vecmill.models.config_fields import read_choice, refuse_unless

# The activation of the gate for each supported `feed_forward_type`.
_GATES = {"geglu": "gelu", "reglu": "relu"}
# Those of the published classes with a head.
_PURPOSES = (
    "MaskedLM",
    "MultipleChoice",
    "NextSentencePrediction",
    "PreTraining",
    "QuestionAnswering",
    "SequenceClassification",
    "TokenClassification",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JinaBertConfig(BertConfig):
    """The settings of a JinaBERT graph: those of BERT, and the activation of the gates.

    `hidden_act` is that of the vocabulary head alone.
    """

    graph: ClassVar = "jina_bert_graph:JinaBert"
    replaced_classes: ClassVar = frozenset(
        {"JinaBertConfig", "JinaBertPreTrainedModel", "JinaBertModel", "JinaBertLMHeadModel"}
        | {f"JinaBertFor{purpose}" for purpose in _PURPOSES}
    )

    gate_act: str

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of the published code.

        A missing `feed_forward_type` is "geglu": a model without gates has other tensors, and one with other
        gates has the key. Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(
            config,
            {"position_embedding_type": ("alibi",), "is_decoder": (False,), "add_cross_attention": (False,)},
        )
        kind = str(read_choice(config, "feed_forward_type", _GATES, "geglu"))
        return cls._read(config, gate_act=_GATES[kind])

    @property
    def given_layers(self) -> int:
        """0: the graph gives the last layer alone."""
        return 0

    @property
    def is_in_transformers(self) -> bool:
        """False: transformers would load the model as BERT, with random weights for what is missing."""
        return False
