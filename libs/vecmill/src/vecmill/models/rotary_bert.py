"""What the `config.json` of a NomicBERT or GTE encoder says: BERT with rotary positions and gated units.

Both families were published with code of their own and later joined transformers, which renamed the
keys and the `model_type` of GTE ("new" before). Here both spellings are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.rope import Rope, read_rope
from vecmill.models.settings import (
    head_size,
    read_activation,
    read_epsilon,
    read_flag,
    read_number,
    read_size,
    refuse_unless,
)


@dataclass(frozen=True, slots=True)
class RotaryBertConfig:
    """The sizes and choices that a graph is built from, named as in transformers.

    `type_vocab_size` is 0 where there are no token types.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str
    tie_word_embeddings: bool
    rope: Rope

    @property
    def max_input_tokens(self) -> int:
        """What the model was made for."""
        return self.max_position_embeddings


# Published keys of NomicBERT -> those of transformers.
_NOMIC_KEYS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}

# Keys that a published file must have, since its own code has other defaults than transformers.
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

# Choices that the published code of NomicBERT has and transformers has not.
_NOMIC_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "activation_function": ("swiglu",),
    "causal": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "moe_every_n_layers": (0,),
    "num_experts": (0,),
    "parallel_block": (False,),
    "prenorm": (False,),
    "qkv_proj_bias": (False,),
    "rotary_emb_fraction": (1,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "rotary_scaling_factor": (),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_rms_norm": (False,),
}

# The same for GTE.
_NEW_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
    "pack_qkv": (True,),
    "position_embedding_type": ("rope",),
}


@dataclass(frozen=True, slots=True)
class NomicBertConfig(RotaryBertConfig):
    """transformers' `NomicBertConfig`, and the keys that models were published with."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, _NOMIC_CHOICES)
        _check_published(config)
        named = {_NOMIC_KEYS.get(key, key): value for key, value in config.items()}
        positions = read_size(named, "max_position_embeddings", 2048)
        return cls(
            **_read_common(named),
            vocab_size=read_size(named, "vocab_size", 30_528),
            hidden_act=read_activation(named, "hidden_act", "silu"),
            max_position_embeddings=positions,
            type_vocab_size=read_size(named, "type_vocab_size", 2),
            tie_word_embeddings=True,
            rope=read_rope(named, theta=1000.0, positions=positions),
        )


@dataclass(frozen=True, slots=True)
class GteConfig(RotaryBertConfig):
    """transformers' `GteConfig`, with the choices that only the published code has."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, _NEW_CHOICES)
        positions = read_size(config, "max_position_embeddings", 8192)
        return cls(
            **_read_common(config),
            vocab_size=read_size(config, "vocab_size", 250_048),
            hidden_act=read_activation(config, "hidden_act", "gelu"),
            max_position_embeddings=positions,
            type_vocab_size=read_size(config, "type_vocab_size", 1, least=0),
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=True),
            rope=read_rope(config, theta=160_000.0, positions=positions),
        )


@dataclass(frozen=True, slots=True)
class NewConfig(RotaryBertConfig):
    """The `NewConfig` of the code that GTE models were published with."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of the published code.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, _NEW_CHOICES)
        common = _read_common(config)
        return cls(
            **common,
            vocab_size=read_size(config, "vocab_size", 30_528),
            hidden_act=read_activation(config, "hidden_act", "gelu"),
            max_position_embeddings=read_size(config, "max_position_embeddings", 2048),
            type_vocab_size=read_size(config, "type_vocab_size", 1, least=0),
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=True),
            rope=_read_scaled_rope(config, common["head_dim"]),
        )


def _read_scaled_rope(config: Mapping[str, Any], head_dim: int) -> Rope:
    """Scaling of type "ntk" raises theta by the factor and slows all frequencies by a little of it."""
    scaling = config.get("rope_scaling")
    theta = read_number(config, "rope_theta", 10_000.0)
    if scaling is None:
        return Rope(theta)
    if not isinstance(scaling, Mapping) or scaling.get("type") != "ntk" or set(scaling) - {"type", "factor"}:
        raise UnsupportedModel(
            f"config.json: rope_scaling {scaling!r} is not supported; only a type of 'ntk' with a factor is."
        )
    # The published code scales only where there is more to position than before.
    factor = max(1.0, read_number(scaling, "factor", 1.0))
    return Rope(theta * factor, factor ** (2 / head_dim))


def _check_published(config: Mapping[str, Any]) -> None:
    """Refuse a NomicBERT file with published keys of which some are missing, or with both spellings."""
    if not any(key in config for key in _NOMIC_KEYS):
        return
    missing = [key for key in _NOMIC_NEEDS if config.get(key) is None]
    if missing:
        raise UnsupportedModel(f"config.json: without {', '.join(missing)} the model is not supported.")
    for published, key in _NOMIC_KEYS.items():
        if published in config and config.get(key, config[published]) != config[published]:
            raise CorruptModel(f"config.json: {published} and {key} say different things.")


def _read_common(config: Mapping[str, Any]) -> dict[str, Any]:
    hidden_size = read_size(config, "hidden_size", 768)
    heads = read_size(config, "num_attention_heads", 12)
    head_dim = head_size(hidden_size, heads)
    refuse_unless(config, {"head_dim": (head_dim,)})
    if head_dim % 2:
        raise CorruptModel(f"config.json: heads of {head_dim} columns cannot have rotary positions.")
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": read_size(config, "num_hidden_layers", 12),
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "intermediate_size": read_size(config, "intermediate_size", 3072),
        "layer_norm_eps": read_epsilon(config, "layer_norm_eps", 1e-12),
    }
