"""Reads the `config.json` of BERT and of the encoders that differ from it in details.

RoBERTa, XLM-RoBERTa and CamemBERT, DistilBERT, ELECTRA, MPNet and ALBERT.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    activation,
    epsilon,
    flag,
    head_size,
    read_activation,
    read_fields,
    read_size,
    read_token_id,
    refuse_unless,
    size,
)
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.tied_tensors import Tie
from vecmill.values.messages import not_supported

MPNET_PADDING = 1  # transformers' `MPNetEmbeddings` counts positions from here and ignores `pad_token_id`
MPNET_BUCKETS = 32  # its encoder uses this number of buckets and ignores `relative_attention_num_buckets`

# Published ALBERT models have 24. Each layer costs time although it has no weights of its own.
_MOST_SHARED_LAYERS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig(EncoderConfig):
    """The settings of a BERT graph, named as in transformers' `BertConfig`.

    `embedding_size` is the width of the embedding tables. With `tie_word_embeddings` the output weights of a
    language model's head, `decoder`, are the word embeddings, unless the head has its own. `decoder_bias` is
    another name of their bias.
    """

    graph: ClassVar = "bert_graph:Bert"
    decoder: ClassVar[str] = "cls.predictions.decoder"
    decoder_bias: ClassVar[str] = "cls.predictions.bias"

    vocab_size: int = size(30_522)
    hidden_size: int = size(768)
    num_hidden_layers: int = size(12, most=MOST_LAYERS)
    num_attention_heads: int = size(12)
    intermediate_size: int = size(3072)
    max_position_embeddings: int = size(512)
    type_vocab_size: int = size(2, least=0)
    layer_norm_eps: float = epsilon(1e-12)
    hidden_act: str = activation("gelu")
    embedding_size: int
    tie_word_embeddings: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises `CorruptModel` for invalid values, `UnsupportedModel` for unsupported ones.
        """
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        return cls._read(config)

    @classmethod
    def _read(cls, config: Mapping[str, Any], **given: Any) -> Self:
        """Read the declared fields that are not `given`; by default `embedding_size` is `hidden_size`."""
        found = read_fields(cls, config, **given)
        head_size(found["hidden_size"], found["num_attention_heads"])
        return cls(**{"embedding_size": found["hidden_size"], **found})

    @property
    def head_dim(self) -> int:
        """The dimension of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def vocabulary_width(self) -> int:
        """The width of the states from which the language model's head predicts tokens."""
        return self.embedding_size

    @property
    def max_input_tokens(self) -> int | None:
        """The number of position embeddings."""
        return self.max_position_embeddings

    @property
    def given_layers(self) -> int:
        """The number of layers, all of which the graph gives."""
        return self.num_hidden_layers

    @property
    def token_types(self) -> int:
        """The number of token types that the model distinguishes."""
        return self.type_vocab_size

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The weights of the decoder and the word embeddings, and the two names of its bias."""
        if not self.tie_word_embeddings:
            return ()
        weight = Tie(f"{self.decoder}.weight", "embeddings.word_embeddings.weight", reads_copies=True)
        bias = Tie(f"{self.decoder}.bias", self.decoder_bias, reads_copies=True)
        return (weight,) if bias.own == bias.other else (weight, bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class RobertaConfig(BertConfig):
    """The settings of RoBERTa: those of BERT, with positions counted from `pad_token_id` + 1."""

    graph: ClassVar = "bert_graph:Roberta"
    shifts_positions: ClassVar = True
    decoder: ClassVar = "lm_head.decoder"
    decoder_bias: ClassVar = "lm_head.bias"

    vocab_size: int = size(50_265)
    pad_token_id: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        roberta = cls._read(config, pad_token_id=read_padding(config))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """The settings of DistilBERT: those of BERT, without token types."""

    graph: ClassVar = "bert_graph:DistilBert"
    aliases: ClassVar = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    reads_aliases_alone: ClassVar = True
    decoder: ClassVar = "vocab_projector"
    decoder_bias: ClassVar = "vocab_projector.bias"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        return cls._read(
            config,
            hidden_size=read_size(config, "dim", 768),
            num_hidden_layers=read_size(config, "n_layers", 6, most=MOST_LAYERS),
            num_attention_heads=read_size(config, "n_heads", 12),
            intermediate_size=read_size(config, "hidden_dim", 3072),
            type_vocab_size=0,
            layer_norm_eps=1e-12,
            hidden_act=read_activation(config, "activation", "gelu"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectraConfig(BertConfig):
    """The settings of ELECTRA: those of BERT, with embeddings that may be narrower than hidden states."""

    graph: ClassVar = "bert_graph:Electra"
    decoder: ClassVar = "generator_lm_head"
    decoder_bias: ClassVar = "generator_lm_head.bias"

    hidden_size: int = size(256)
    num_attention_heads: int = size(4)
    intermediate_size: int = size(1024)
    embedding_size: int = size(128)


@dataclass(frozen=True, slots=True, kw_only=True)
class MPNetConfig(BertConfig):
    """The settings of MPNet: those of BERT without token types, and the number of bias buckets."""

    graph: ClassVar = "bert_graph:MPNet"
    shifts_positions: ClassVar = True
    decoder: ClassVar = "lm_head.decoder"
    decoder_bias: ClassVar = "lm_head.bias"

    vocab_size: int = size(30_527)
    relative_attention_num_buckets: int = size(MPNET_BUCKETS)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        mpnet = cls._read(config, type_vocab_size=0)
        stored = mpnet.relative_attention_num_buckets
        if stored < MPNET_BUCKETS:
            key, supported = "config.json: relative_attention_num_buckets", f"at least {MPNET_BUCKETS}"
            raise UnsupportedModel(not_supported(key, stored, (supported,)))
        if mpnet.max_input_tokens < 1:
            raise CorruptModel(f"config.json: max_position_embeddings must be at least {MPNET_PADDING + 2}.")
        return mpnet

    @property
    def max_input_tokens(self) -> int:
        """The number of positions after `MPNET_PADDING`."""
        return self.max_position_embeddings - MPNET_PADDING - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlbertConfig(BertConfig):
    """The settings of ALBERT: those of BERT, with narrower embeddings and layers that share weights.

    The model runs `num_hidden_layers` groups of `inner_group_num` layers, but stores weights for only
    `num_hidden_groups` groups.
    """

    graph: ClassVar = "albert_graph:Albert"
    decoder: ClassVar = "predictions.decoder"
    decoder_bias: ClassVar = "predictions.bias"

    vocab_size: int = size(30_000)
    hidden_size: int = size(4096)
    num_attention_heads: int = size(64)
    intermediate_size: int = size(16_384)
    hidden_act: str = activation("gelu_new")
    embedding_size: int = size(128)
    num_hidden_groups: int = size(1, most=MOST_LAYERS)
    inner_group_num: int = size(1, most=MOST_LAYERS)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",)})
        albert = cls._read(config)
        if albert.num_hidden_groups > albert.num_hidden_layers:
            raise CorruptModel("config.json: num_hidden_groups must be at most num_hidden_layers.")
        # Layers share weights, so the weights do not bound their number.
        if albert.num_hidden_layers * albert.inner_group_num > _MOST_SHARED_LAYERS:
            raise CorruptModel(
                f"config.json: num_hidden_layers times inner_group_num must be at most {_MOST_SHARED_LAYERS}."
            )
        return albert

    @property
    def given_layers(self) -> int:
        """The number of layers that the model runs, all of which the graph gives."""
        return self.num_hidden_layers * self.inner_group_num


def read_padding(config: Mapping[str, Any]) -> int:
    """Read `pad_token_id`, from which positions are counted. Raises `CorruptModel` if there is none."""
    token_id = read_token_id(config, "pad_token_id", 1)
    if token_id is None or token_id < 0:
        raise CorruptModel(
            "config.json: pad_token_id must be a token id, because positions are counted from it."
        )
    return token_id
