"""Reads the `config.json` of NomicBERT and GTE: BERT with rotary positions, and gated units or experts.

Both were published with code of their own. transformers adopted them later and renamed keys, and the
`model_type` "new" to "gte". Published and transformers' names are both read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    activation,
    check_rotary_heads,
    epsilon,
    flag,
    head_size,
    keys_renamed,
    read_fields,
    read_flag,
    read_number,
    read_size,
    refuse_unless,
    size,
)
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.rope import Rope, read_rope
from vecmill.models.tied_tensors import Tie
from vecmill.values.messages import not_supported


@dataclass(frozen=True, slots=True)
class RotaryBertNames:
    """The names of tensors. The names of a layer's tensors lack its prefix.

    Several names stand for tensors that are concatenated along the first axis.
    """

    embeddings_norm: str
    layers: str
    query_key_value: tuple[str, ...]
    output: str
    attention_norm: str
    up_gate: tuple[str, ...]
    down: str
    mlp_norm: str

    def translate(self, module: str) -> tuple[str, ...]:
        """Return the modules of transformers' layer that a module stands for, or itself if it is unknown."""
        theirs = TRANSFORMERS_NAMES
        for published, names in (
            (self.query_key_value, theirs.query_key_value),
            (self.up_gate, theirs.up_gate),
            ((self.output,), (theirs.output,)),
            ((self.attention_norm,), (theirs.attention_norm,)),
            ((self.down,), (theirs.down,)),
            ((self.mlp_norm,), (theirs.mlp_norm,)),
        ):
            if module in published:
                return names if len(published) == 1 else (names[published.index(module)],)
        return (module,)


TRANSFORMERS_NAMES = RotaryBertNames(
    embeddings_norm="embeddings.LayerNorm",
    layers="layers",
    query_key_value=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    output="self_attn.o_proj",
    attention_norm="post_attention_layernorm",
    up_gate=("mlp.up_proj", "mlp.gate_proj"),
    down="mlp.down_proj",
    mlp_norm="post_mlp_layernorm",
)
NOMIC_NAMES = RotaryBertNames(
    embeddings_norm="emb_ln",
    layers="encoder.layers",
    query_key_value=("attn.Wqkv",),
    output="attn.out_proj",
    attention_norm="norm1",
    up_gate=("mlp.fc11", "mlp.fc12"),
    down="mlp.fc2",
    mlp_norm="norm2",
)
GTE_NAMES = RotaryBertNames(
    embeddings_norm="embeddings.LayerNorm",
    layers="encoder.layer",
    query_key_value=("attention.qkv_proj",),
    output="attention.o_proj",
    attention_norm="attn_ln",
    up_gate=("mlp.up_gate_proj",),
    down="mlp.down_proj",
    mlp_norm="mlp_ln",
)


@dataclass(frozen=True, slots=True)
class Biases:
    """Whether linear layers have biases: those of attention, and both ends of a feed-forward layer."""

    attention: bool
    up: bool
    down: bool


@dataclass(frozen=True, slots=True)
class ExpertSettings:
    """The experts of layers 1, 1 + `period`, 1 + 2 * `period` ...: `chosen` of `count` for each token."""

    count: int
    chosen: int
    period: int

    def are_in(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return layer % self.period == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryBertConfig(EncoderConfig):
    """The settings of a NomicBERT or GTE graph, named as in transformers.

    `type_vocab_size` is 0 without token types. Feed-forward layers are gated units (`is_gated`) or two linear
    layers.
    """

    replaces_code: ClassVar = True
    published_names: ClassVar[RotaryBertNames]
    decoder_ties: ClassVar[tuple[Tie, ...]]

    vocab_size: int = size(30_528)
    hidden_size: int = size(768)
    num_hidden_layers: int = size(12, most=MOST_LAYERS)
    num_attention_heads: int = size(12)
    head_dim: int
    intermediate_size: int = size(3072)
    max_position_embeddings: int = size(2048)
    type_vocab_size: int = size(1, least=0)
    layer_norm_eps: float = epsilon(1e-12)
    hidden_act: str = activation("gelu")
    tie_word_embeddings: bool = flag(True)
    rope: Rope
    biases: Biases = Biases(attention=True, up=False, down=True)
    is_gated: bool = True

    @classmethod
    def _read(cls, config: Mapping[str, Any], **given: Any) -> dict[str, Any]:
        """Read all fields but `rope`."""
        found = read_fields(cls, config, **given)
        head_dim = head_size(found["hidden_size"], found["num_attention_heads"])
        refuse_unless(config, {"head_dim": (head_dim,)}, by="hidden_size and num_attention_heads")
        check_rotary_heads(head_dim)
        return {**found, "head_dim": head_dim}

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The decoder of a language model's head and the word embeddings, and the names of its bias."""
        return tuple(replace(tie, applies=self.tie_word_embeddings) for tie in self.decoder_ties)

    def rename_tensor(self, name: str) -> tuple[str, ...]:
        """Return the names of a published tensor in transformers, as the base class describes."""
        head, layer, rest = name.partition(f"{self.published_names.layers}.")
        if not layer:
            return (name.replace(f"{self.published_names.embeddings_norm}.", "embeddings.LayerNorm."),)
        number, _, module = rest.partition(".")
        module, _, kind = module.rpartition(".")
        return tuple(
            f"{head}{TRANSFORMERS_NAMES.layers}.{number}.{new}.{kind}"
            for new in self.published_names.translate(module)
        )

    @property
    def max_input_tokens(self) -> int:
        """The number of positions of the model."""
        return self.max_position_embeddings

    @property
    def limits_input(self) -> bool:
        """Whether no setting exceeds `max_input_tokens`: positions are rotary, so it is not so."""
        return False

    @property
    def token_types(self) -> int:
        """The number of token types that the model distinguishes."""
        return self.type_vocab_size


# Published keys of NomicBERT -> those of transformers. `n_positions`, the longest input, is one too if there
# is no `max_position_embeddings`; in a file with both that is the number of trained positions.
_NOMIC_KEYS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}

# Keys that a published file must have, because the defaults of its code differ from those of transformers.
_NOMIC_NEEDS = (
    "activation_function",
    "layer_norm_epsilon",
    "mlp_fc1_bias",
    "mlp_fc2_bias",
    "n_inner",
    "qkv_proj_bias",
    "rotary_emb_base",
    "rotary_emb_fraction",
)

# The activation of each supported `activation_function`. "swiglu" is that of a gated unit.
_NOMIC_ACTIVATIONS = {"gelu": "gelu", "swiglu": "silu"}

# The supported values of keys that only the published code of NomicBERT reads.
_NOMIC_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "activation_function": tuple(_NOMIC_ACTIVATIONS),
    "causal": (False,),
    "expert_choice_router": (False,),
    "ffn_div": (1,),
    "moe_normalize_expert_weights": (False,),
    "num_shared_experts": (0,),
    "parallel_block": (False,),
    "prenorm": (False,),
    "rotary_emb_fraction": (1,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "rotary_head_dim": (False,),
    "rotary_scaling_factor": (),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_rms_norm": (False,),
}

_MOST_EXPERTS = 256  # of a layer; each is a part of the graph
_SHORTEST_PERIOD = 2  # layers 1, 3, 5 and so on have experts

# The supported values of keys that only the published code of GTE reads.
_GTE_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
    "pack_qkv": (True,),
    "position_embedding_type": ("rope",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NomicBertConfig(RotaryBertConfig):
    """The settings of NomicBERT, with transformers' or the published keys."""

    graph: ClassVar = "rotary_bert_graph:NomicBert"
    published_names: ClassVar = NOMIC_NAMES
    decoder_ties: ClassVar = (
        Tie("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", "nomic_bert."),
        Tie("cls.predictions.decoder.bias", "cls.predictions.bias", "nomic_bert."),
    )

    type_vocab_size: int = size(2)
    hidden_act: str = activation("silu")
    experts: ExpertSettings | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(config, _NOMIC_CHOICES)
        _check_published(config)
        named = {_NOMIC_KEYS.get(key, key): value for key, value in config.items()}
        keys = {_NOMIC_KEYS[key]: key for key in config if key in _NOMIC_KEYS}
        if named.get("max_position_embeddings") is None and config.get("n_positions") is not None:
            named["max_position_embeddings"] = config["n_positions"]
            keys["max_position_embeddings"] = "n_positions"
        with keys_renamed(keys):
            return cls._read_named(named, config)

    @classmethod
    def _read_named(cls, named: dict[str, Any], config: Mapping[str, Any]) -> Self:
        """Read `config`, in which `named` has the names of transformers."""
        function = config.get("activation_function")
        if function is not None:
            act = _NOMIC_ACTIVATIONS[function]
            refuse_unless(config, {"hidden_act": (act,)}, by="activation_function")
            named["hidden_act"] = act
        found = cls._read(named)
        return cls(
            **found,
            rope=read_rope(named, theta=1000.0, positions=found["max_position_embeddings"]),
            biases=_read_biases(config),
            is_gated=function != "gelu",
            experts=_read_experts(config),
        )

    @property
    def is_in_transformers(self) -> bool:
        """Whether all layers are gated units without biases, as in transformers' class."""
        return self.is_gated and self.biases == Biases(attention=False, up=False, down=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GteConfig(RotaryBertConfig):
    """The settings of GTE in transformers."""

    graph: ClassVar = "rotary_bert_graph:Gte"
    published_names: ClassVar = GTE_NAMES
    decoder_ties: ClassVar = (Tie("lm_head.decoder.weight", "embeddings.word_embeddings.weight", "gte."),)

    vocab_size: int = size(250_048)
    max_position_embeddings: int = size(8192)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(config, _GTE_CHOICES)
        found = cls._read(config)
        rope = read_rope(config, theta=160_000.0, positions=found["max_position_embeddings"])
        return cls(**found, rope=rope)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConfig(RotaryBertConfig):
    """The settings of GTE in its published code."""

    graph: ClassVar = "rotary_bert_graph:New"
    published_names: ClassVar = GTE_NAMES
    decoder_ties: ClassVar = (Tie("lm_head.decoder.weight", "embeddings.word_embeddings.weight", "new."),)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of the published code.

        Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(config, _GTE_CHOICES)
        found = cls._read(config)
        return cls(**found, rope=_read_scaled_rope(config, found["head_dim"]))


def _read_scaled_rope(config: Mapping[str, Any], head_dim: int) -> Rope:
    """Read `rope_scaling` of type "ntk", which multiplies theta and divides all frequencies."""
    scaling = config.get("rope_scaling")
    theta = read_number(config, "rope_theta", 10_000.0)
    if scaling is None:
        return Rope(theta)
    if not isinstance(scaling, Mapping) or scaling.get("type") != "ntk" or set(scaling) - {"type", "factor"}:
        raise UnsupportedModel(
            not_supported("config.json: rope_scaling", scaling, ("type 'ntk' with a factor",))
        )
    # The published code ignores factors below 1.
    factor = max(1.0, read_number(scaling, "factor", 1.0))
    return Rope(theta * factor, factor ** (2 / head_dim))


def _read_biases(config: Mapping[str, Any]) -> Biases:
    keys = ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")
    return Biases(*(read_flag(config, key, default=False) for key in keys))


def _read_experts(config: Mapping[str, Any]) -> ExpertSettings | None:
    """Read the settings of experts, `None` if there are none. The published code has no gated experts."""
    count = read_size(config, "num_experts", 0, least=0, most=_MOST_EXPERTS)
    period = read_size(config, "moe_every_n_layers", 0, least=0, most=MOST_LAYERS)
    if not count and not period:
        return None
    if not count or period < _SHORTEST_PERIOD:
        raise UnsupportedModel(
            f"config.json: num_experts {count} with moe_every_n_layers {period} is not supported; experts "
            f"need at least 1 and {_SHORTEST_PERIOD}."
        )
    refuse_unless(config, {"activation_function": ("gelu",)}, by="num_experts")
    if config.get("activation_function") is None or config.get("moe_top_k") is None:
        raise UnsupportedModel(
            "config.json: with num_experts, moe_top_k and activation_function must be given."
        )
    return ExpertSettings(count, read_size(config, "moe_top_k", 1, most=count), period)


def _check_published(config: Mapping[str, Any]) -> None:
    """Refuse a NomicBERT file whose published keys are incomplete or contradict transformers' keys."""
    if not any(key in config for key in (*_NOMIC_KEYS, "n_positions")):
        return
    missing = [key for key in _NOMIC_NEEDS if config.get(key) is None]
    if missing:
        raise UnsupportedModel(f"config.json: without {', '.join(missing)} the model is not supported.")
    for published, key in _NOMIC_KEYS.items():
        if published in config and config.get(key, config[published]) != config[published]:
            raise CorruptModel(f"config.json: {published} and {key} have different values.")
