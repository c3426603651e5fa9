"""Reads the `config.json` of decoders that were published as encoders, under a `model_type` of their own.

They attend in both directions, and their repositories have the code that says so, which their graphs replace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, LlamaConfig, Qwen3Config
from vecmill.architectures.llama_variants import Ministral3Config
from vecmill.models.config_fields import read_number, refuse_unless


class BidirectionalConfig(DecoderConfig):
    """The settings of a decoder that attends in both directions, under a `model_type` that says so."""

    @property
    def is_in_transformers(self) -> bool:
        """False: transformers has no such `model_type`."""
        return False

    @classmethod
    def _is_causal(cls, config: Mapping[str, Any]) -> bool:
        refuse_unless(config, {"use_bidirectional_attention": (True,), "is_causal": (False,)})
        return False


@dataclass(frozen=True, kw_only=True)
class BidirectionalLlamaConfig(BidirectionalConfig, LlamaConfig):
    """The settings of NVIDIA's embedders and rerankers: Llama in both directions (`llama_bidirec`).

    Sequence classification reads the mean of all tokens, and divides logits by `temperature`. Source:
    `llama_bidirectional` of NeMo AutoModel.
    """

    graph: ClassVar = "decoder_graph:BidirectionalLlama"
    replaced_classes: ClassVar = frozenset(
        {
            "LlamaBidirectionalConfig",
            "LlamaBidirectionalModel",
            "LlamaBidirectionalForSequenceClassification",
        }
    )
    bidirectional_classes: ClassVar = replaced_classes

    temperature: float = 1.0

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        refuse_unless(config, {"pooling": ("avg",)})
        return replace(super().read(config), temperature=read_number(config, "temperature", 1.0))


class BidirectionalMinistral3Config(BidirectionalConfig, Ministral3Config):
    """The settings of embedders of NVIDIA's NeMo AutoModel: Ministral 3 in both directions.

    Newer files of the same models are `ministral3` with `is_causal: false`. Source: `ministral_bidirectional`
    of NeMo AutoModel.
    """

    replaced_classes = bidirectional_classes = frozenset(
        {"Ministral3BidirectionalConfig", "Ministral3BidirectionalModel"}
    )


class PplxQwen3Config(BidirectionalConfig, Qwen3Config):
    """The settings of Perplexity's embedders: Qwen3 in both directions (`bidirectional_pplx_qwen3`)."""

    judges_pairs = False
    replaced_classes = bidirectional_classes = frozenset({"PPLXQwen3Config", "PPLXQwen3Model"})
