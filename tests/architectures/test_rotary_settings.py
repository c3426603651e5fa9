"""What a `config.json` of the rotary families asks for is done, or refused by the name of the key."""

from typing import Any

import pytest

from vecmill.architectures.decoder import DecoderConfig
from vecmill.architectures.modernbert import ModernBertConfig
from vecmill.architectures.registry import read_encoder
from vecmill.architectures.rotary_bert import NomicBertConfig, RotaryBertConfig
from vecmill.errors import CorruptModel, SetupError, UnsupportedModel
from vecmill.models.encoder_config import BIDIRECTIONAL, CAUSAL, AttentionWindow
from vecmill.models.rope import Rope

NOMIC_PUBLISHED: dict[str, Any] = {
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
}
NOMIC_EXPERTS: dict[str, Any] = {
    **NOMIC_PUBLISHED,
    "activation_function": "gelu",
    "num_experts": 8,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
}

# EncoderGraph, what its file says, and the words that the error must have.
UNSUPPORTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "axial": ("qwen3", {"rope_scaling": {"rope_type": "axial", "factor": 4.0}}, "rope_scaling of type axial"),
    "proportional": ("gte", {"rope_parameters": {"rope_type": "proportional"}}, "type proportional"),
    "two_types": ("qwen3", {"rope_scaling": {"type": "linear", "rope_type": "default"}}, "default, linear"),
    "partial": ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    "partial_inside": ("gte", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    "layered_rope": (
        "qwen3",
        {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}},
        "each type of layer",
    ),
    "flat_rope": ("modernbert", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters"),
    "scaling_not_applied": (
        "gemma3_text",
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_scaling",
    ),
    "scaled_layer": (
        "gemma3_text",
        {"rope_parameters": {"full_attention": {"rope_type": "mrope", "factor": 2.0}}},
        "rope_parameters.full_attention of type mrope",
    ),
    "scaled_layer_unrounded": (
        "gemma3_text",
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}},
        "truncate False",
    ),
    "chunks": ("qwen3", {"num_hidden_layers": 1, "layer_types": ["chunked_attention"]}, "chunked_attention"),
    "both_directions": ("qwen3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    "two_wishes": ("gemma3_text", {"use_bidirectional_attention": True, "is_causal": False}, "is_causal"),
    "activation": ("qwen3", {"hidden_act": "xielu"}, "hidden_act 'xielu'"),
    "capped_scores": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
    "llama_layers": ("llama", {"layer_types": ["full_attention"]}, "layer_types"),
    "mistral_layers": ("mistral", {"layer_types": ["full_attention"]}, "layer_types"),
    "mistral_biases": ("mistral", {"attention_bias": True}, "attention_bias"),
    "modernbert_pooling": ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling 'max'"),
    "modernbert_heads": ("modernbert", {"head_dim": 32}, "head_dim 32"),
    "modernbert_windows": ("modernbert", {"local_attention": 128, "sliding_window": 8}, "sliding_window 8"),
    "nomic_activation": ("nomic_bert", {**NOMIC_PUBLISHED, "activation_function": "glu"}, "'glu'"),
    "nomic_two_activations": ("nomic_bert", {**NOMIC_PUBLISHED, "hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "nomic_no_experts": ("nomic_bert", {**NOMIC_EXPERTS, "num_experts": 0}, "num_experts 0"),
    "nomic_no_layers_with_experts": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "moe_every_n_layers": 0},
        "moe_every_n_layers 0",
    ),
    "nomic_experts_in_all_layers": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "moe_every_n_layers": 1},
        "moe_every_n_layers 1",
    ),
    "nomic_gated_experts": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "activation_function": "swiglu"},
        "activation_function 'swiglu'",
    ),
    "nomic_unclear_experts": ("nomic_bert", {**NOMIC_EXPERTS, "moe_top_k": None}, "moe_top_k"),
    "nomic_shares": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "moe_normalize_expert_weights": 1},
        "moe_normalize_expert_weights 1",
    ),
    "nomic_shared_experts": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "num_shared_experts": 1},
        "num_shared_experts 1",
    ),
    "nomic_choosing_experts": (
        "nomic_bert",
        {**NOMIC_EXPERTS, "expert_choice_router": True},
        "expert_choice_router True",
    ),
    "nomic_small_experts": ("nomic_bert", {**NOMIC_EXPERTS, "ffn_div": 2}, "ffn_div 2"),
    "nomic_scaling": ("nomic_bert", {**NOMIC_PUBLISHED, "rotary_scaling_factor": 2}, "rotary_scaling_factor"),
    "nomic_unclear": ("nomic_bert", {"n_embd": 64}, "rotary_emb_base"),
    "new_positions": ("new", {"position_embedding_type": "absolute"}, "position_embedding_type"),
    "new_norm": ("new", {"layer_norm_type": "rms_norm"}, "layer_norm_type"),
    "new_scores": ("new", {"logn_attention_scale": True}, "logn_attention_scale"),
    "new_scaling": ("new", {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "mixed_b"),
    "t5_decoder": ("t5", {"is_decoder": True}, "is_decoder"),
    "mt5_decoder": ("mt5", {"is_decoder": True}, "is_decoder"),
    "umt5_gate": ("umt5", {"feed_forward_proj": "gated-softmax"}, "feed_forward_proj 'gated-softmax'"),
    "t5_gate": ("t5", {"feed_forward_proj": "double-gelu"}, "feed_forward_proj 'double-gelu'"),
    "t5_two_wishes": ("t5", {"feed_forward_proj": "gated-gelu", "dense_act_fn": "relu"}, "dense_act_fn"),
}
CORRUPT: dict[str, tuple[str, dict[str, Any], str]] = {
    "no_low_factor": (
        "mistral",
        {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}},
        "type llama3 needs a low_freq_factor",
    ),
    "low_above_high": (
        "mistral",
        {"rope_scaling": {"type": "llama3", "factor": 2.0, "low_freq_factor": 4, "high_freq_factor": 4}},
        "high_freq_factor must be above",
    ),
    "no_short_factor": (
        "gte",
        {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}},
        "rope_parameters.short_factor must list numbers",
    ),
    "no_factor": ("qwen3", {"rope_scaling": {"rope_type": "linear"}}, "factor"),
    "theta": ("qwen3", {"rope_theta": -1}, "rope_theta"),
    "groups": ("qwen3", {"num_attention_heads": 4, "num_key_value_heads": 3}, "num_key_value_heads 3"),
    "odd_heads": ("qwen3", {"head_dim": 5}, "5 dimensions"),
    "layers": ("qwen3", {"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types"),
    "no_window": ("qwen3", {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}, "sliding_window"),
    "window": ("gemma3_text", {"sliding_window": 0}, "sliding_window"),
    "heads": ("modernbert", {"num_attention_heads": 7}, "hidden_size 768"),
    "nomic_more_chosen_than_there_are": ("nomic_bert", {**NOMIC_EXPERTS, "moe_top_k": 9}, "moe_top_k"),
    "nomic_bias": ("nomic_bert", {**NOMIC_PUBLISHED, "qkv_proj_bias": "yes"}, "qkv_proj_bias"),
    "nomic_both": ("nomic_bert", {**NOMIC_PUBLISHED, "hidden_size": 32}, "n_embd and hidden_size"),
    "umt5_heads": ("umt5", {"num_heads": 0}, "num_heads"),
    "mt5_layers": ("mt5", {"num_layers": 10**6}, "num_layers"),
    "t5_buckets": ("t5", {"relative_attention_num_buckets": 2}, "relative_attention_num_buckets"),
}


@pytest.mark.parametrize("name", [*UNSUPPORTED, *CORRUPT])
def test_what_is_not_built_is_refused_by_name(name: str) -> None:
    error: type[SetupError] = UnsupportedModel if name in UNSUPPORTED else CorruptModel
    family, config, words = (UNSUPPORTED | CORRUPT)[name]
    with pytest.raises(error) as caught:
        read_encoder({"model_type": family, **config}, "config.json")
    assert words in caught.value.message
    assert caught.value.message.startswith("config.json")


@pytest.mark.parametrize(
    ("config", "is_in_transformers"),
    [
        ({}, True),
        (NOMIC_PUBLISHED, True),
        (NOMIC_PUBLISHED | {"mlp_fc2_bias": True}, False),
        (NOMIC_PUBLISHED | {"activation_function": "gelu"}, False),
        (NOMIC_EXPERTS, False),
    ],
)
def test_nomic_bert_of_transformers_has_gates_and_no_biases(
    config: dict[str, Any], is_in_transformers: bool
) -> None:
    encoder = read_encoder({"model_type": "nomic_bert", **config}, "config.json")
    assert encoder.is_in_transformers is is_in_transformers


@pytest.mark.parametrize(
    ("positions", "longest"),
    [
        ({"n_positions": 8192}, 8192),
        ({"n_positions": 8192, "max_position_embeddings": None}, 8192),
        ({"n_positions": 8192, "max_position_embeddings": 2048}, 2048),
        ({"n_positions": 8192, "max_position_embeddings": 8192, "max_trained_positions": 2048}, 8192),
        ({"max_position_embeddings": 512}, 512),
    ],
    ids=["published", "null", "both", "both, equal", "transformers"],
)
def test_nomic_bert_may_state_two_numbers_of_positions(positions: dict[str, Any], longest: int) -> None:
    published = {
        "model_type": "nomic_bert",
        "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-12,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "n_inner": 3072,
        "qkv_proj_bias": False,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
    }
    encoder = read_encoder({**published, **positions}, "config.json")
    assert isinstance(encoder, NomicBertConfig)
    assert (encoder.max_input_tokens, encoder.rope.theta) == (longest, 1000)
    resaved = {**published, **positions, "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}
    assert read_encoder(resaved, "config.json") == encoder


def read_decoder(family: str, **config: Any) -> DecoderConfig:
    encoder = read_encoder({"model_type": family, "num_hidden_layers": 4, **config}, "config.json")
    assert isinstance(encoder, DecoderConfig)
    return encoder


DEFAULT_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "hidden_activation",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "pad_token_id",
)


DECODERS = [
    "eurobert",
    "exaone4",
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "llama",
    "ministral",
    "mistral",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen3",
    "seed_oss",
    "smollm3",
]


@pytest.mark.parametrize("family", DECODERS)
def test_defaults_of_decoders_are_those_of_transformers(family: str) -> None:
    from transformers import AutoConfig

    theirs, ours = AutoConfig.for_model(family), read_encoder({"model_type": family}, "config.json")
    assert isinstance(ours, DecoderConfig)
    # Seed-OSS has another key for the bias of the output projection.
    bias = "query_key_value_bias" if hasattr(theirs, "attention_out_bias") else "output_bias"
    names = {"hidden_activation": "hidden_act", "attention_bias": bias}
    shared = [field for field in DEFAULT_FIELDS if hasattr(theirs, field)]
    assert {field: getattr(ours, names.get(field, field)) for field in shared} == {
        field: getattr(theirs, field) for field in shared
    }
    heads = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert (ours.head_dim, len(ours.layers)) == (heads, theirs.num_hidden_layers)
    assert {layer.rope.theta for layer in ours.layers if layer.rope is not None} == read_thetas(
        theirs.rope_parameters
    )


def read_thetas(parameters: dict[str, Any]) -> set[float]:
    """The thetas of all layers, or of each type of layer."""
    by_layer = parameters.values() if "rope_theta" not in parameters else [parameters]
    return {one["rope_theta"] for one in by_layer}


def test_windows_are_read_as_transformers_means_them() -> None:
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}
    windows = [layer.window for layer in read_decoder("qwen3", **window).layers]
    assert windows == [CAUSAL, CAUSAL, CAUSAL, AttentionWindow(7, 0)]
    windows = [layer.window for layer in read_decoder("qwen3", **window, is_causal=False).layers]
    assert windows == [BIDIRECTIONAL, BIDIRECTIONAL, BIDIRECTIONAL, AttentionWindow(8, 8)]
    both = read_decoder(
        "gemma3_text", sliding_window=8, sliding_window_pattern=2, use_bidirectional_attention=True
    )
    assert [layer.window for layer in both.layers] == [AttentionWindow(4, 4), BIDIRECTIONAL] * 2
    assert {layer.window for layer in read_decoder("mistral").layers} == {AttentionWindow(4095, 0)}
    assert {layer.window for layer in read_decoder("mistral", sliding_window=None).layers} == {CAUSAL}


def test_old_and_new_spellings_of_rotary_positions_say_the_same() -> None:
    old = read_decoder("qwen3", rope_theta=5000, rope_scaling={"type": "linear", "factor": 2})
    new = read_decoder("qwen3", rope_parameters={"rope_type": "linear", "factor": 2, "rope_theta": 5000})
    assert old == new
    assert old.layers[0].rope == Rope(5000.0, 2.0)
    old = read_decoder("gemma3_text", rope_theta=50, rope_local_base_freq=20)
    types = {"full_attention": {"rope_theta": 50}, "sliding_attention": {"rope_theta": 20}}
    assert old == read_decoder("gemma3_text", rope_parameters=types)
    assert [layer.rope for layer in old.layers] == [Rope(20.0)] * 4


def test_old_and_new_spellings_of_modernbert_say_the_same() -> None:
    base = {"model_type": "modernbert", "num_hidden_layers": 3}
    old = ModernBertConfig.read({**base, "global_attn_every_n_layers": 2, "local_rope_theta": 20})
    types = ["full_attention", "sliding_attention", "full_attention"]
    thetas = {"sliding_attention": {"rope_theta": 20}}
    assert old == ModernBertConfig.read({**base, "layer_types": types, "rope_parameters": thetas})
    assert [layer.window for layer in old.layers] == [BIDIRECTIONAL, AttentionWindow(64, 64), BIDIRECTIONAL]


def test_a_scaling_that_makes_inputs_shorter_is_none_at_all() -> None:
    scaling = {"type": "ntk", "factor": 0.5}
    shorter = read_encoder({"model_type": "new", "rope_scaling": scaling}, "config.json")
    assert isinstance(shorter, RotaryBertConfig)
    assert shorter.rope == Rope(10_000.0)
