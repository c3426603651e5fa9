"""Gemma and Gemma 2: scaled words, norms around one, and soft caps on scores and logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 6
CAP = 0.8  # of scores: so small that it bends most of them
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
GEMMA2: dict[str, Any] = {
    **SIZES,
    "query_pre_attn_scalar": 20,
    "sliding_window": WINDOW,
    "attn_logit_softcapping": CAP,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaModel", SIZES),
    "gemma_gelu": ("GemmaModel", {**SIZES, "hidden_act": "gelu"}),
    "gemma_biases": ("GemmaModel", {**SIZES, "attention_bias": True}),
    "gemma_one_key_head": ("GemmaModel", {**SIZES, "num_key_value_heads": 1}),
    "gemma_both_directions": ("GemmaModel", {**SIZES, "is_causal": False}),
    "gemma2": ("Gemma2Model", GEMMA2),
    "gemma2_no_cap": ("Gemma2Model", {**GEMMA2, "attn_logit_softcapping": None}),
    "gemma2_biases": ("Gemma2Model", {**GEMMA2, "attention_bias": True}),
    "gemma2_full_layers": ("Gemma2Model", {**GEMMA2, "layer_types": ["full_attention"] * 3}),
    "gemma2_both_directions": ("Gemma2Model", {**GEMMA2, "is_causal": False}),
    "gemma2_linear_scaling": (
        "Gemma2Model",
        {**GEMMA2, "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}},
    ),
}


def scale_norms(tiny: TinyFamily) -> TinyFamily:
    return tiny.with_tensor("norm.weight", lambda weight: weight - 1)


def unscale_words(tiny: TinyFamily) -> TinyFamily:
    return tiny.with_tensor("embed_tokens.weight", lambda weight: weight / np.float32(32**0.5))


DEFECTS: dict[str, Any] = {
    "causal_mask_dropped": lambda tiny: tiny.with_config(is_causal=False),
    "other_theta": lambda tiny: tiny.with_config(rope_parameters={"rope_theta": 20_000.0}),
    "norms_without_their_one": scale_norms,
    "words_not_scaled": unscale_words,
    "gate_of_another_sign": lambda tiny: tiny.with_tensor("gate_proj.weight", np.negative),
}
GEMMA_DEFECTS: dict[str, Any] = {
    **DEFECTS,
    "other_activation": lambda tiny: tiny.with_config(hidden_act="silu"),
    "other_head": lambda tiny: tiny.with_tensor("k_proj.weight", lambda x: np.roll(x, 16, axis=0)),
}
GEMMA2_DEFECTS: dict[str, Any] = {
    **DEFECTS,
    "cap_dropped": lambda tiny: tiny.with_config(attn_logit_softcapping=None),
    "cap_of_the_defaults": lambda tiny: tiny.with_config(attn_logit_softcapping=50.0),
    "window_too_wide": lambda tiny: tiny.with_config(sliding_window=WINDOW + 1),
    "window_too_narrow": lambda tiny: tiny.with_config(sliding_window=WINDOW - 1),
    "layers_shifted": lambda tiny: tiny.with_config(
        layer_types=["full_attention", "sliding_attention", "full_attention"]
    ),
    "other_scale_of_scores": lambda tiny: tiny.with_config(query_pre_attn_scalar=16),
    "other_activation": lambda tiny: tiny.with_config(hidden_activation="silu"),
}


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window."""
    return random_sequences((1, 2, 5, 6, 7, 8, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    class_name, settings = VARIANTS[name]
    assert_agrees(save_tiny_family(tmp_path, class_name, **settings), sequences())


@pytest.mark.parametrize("name", in_part(GEMMA_DEFECTS, "causal_mask_dropped", "norms_without_their_one"))
def test_planted_defects_are_found_in_gemma(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "GemmaModel", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(GEMMA_DEFECTS[name](tiny), sequences())


@pytest.mark.parametrize("name", in_part(GEMMA2_DEFECTS, "window_too_narrow", "other_scale_of_scores"))
def test_planted_defects_are_found_in_gemma_2(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma2Model", **GEMMA2)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(GEMMA2_DEFECTS[name](tiny), sequences())


@pytest.mark.parametrize(("stem", "settings"), [("Gemma", SIZES), ("Gemma2", GEMMA2)])
def test_the_heads_are_those_of_the_class(stem: str, settings: dict[str, Any], tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path / "texts", f"{stem}ForSequenceClassification", **settings, num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)
    tiny = save_tiny_family(tmp_path / "tokens", f"{stem}ForTokenClassification", **settings, num_labels=5)
    assert_agrees(tiny, sequences(), HeadKind.TOKENS, labels=5)
    # Logits of the default size would be so large that a cap leaves its own value alone.
    tiny = save_tiny_family(tmp_path / "language", f"{stem}ForCausalLM", **settings, jitter=0.1)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)


def test_logits_are_capped_at_30_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma2ForCausalLM", **GEMMA2)
    kept = {key: value for key, value in tiny.config.items() if key != "final_logit_softcapping"}
    assert read_encoder(kept, "config.json") == read_encoder(tiny.config, "config.json")
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(final_logit_softcapping=None), sequences(), HeadKind.VOCABULARY)


@pytest.mark.parametrize("model_type", ["gemma", "gemma2"])
def test_settings_that_no_graph_has_are_refused(model_type: str) -> None:
    config = {"model_type": model_type, "use_bidirectional_attention": True}
    with pytest.raises(UnsupportedModel, match="use_bidirectional_attention True is not supported"):
        read_encoder(config, "config.json")
    with pytest.raises(UnsupportedModel, match=r"config\.json: hidden_act"):
        read_encoder({"model_type": model_type, "hidden_activation": "mish", "hidden_act": "mish"}, "x")
    if model_type == "gemma2":
        with pytest.raises(CorruptModel, match="attn_logit_softcapping must be a number above 0"):
            read_encoder({"model_type": model_type, "attn_logit_softcapping": 0}, "config.json")
