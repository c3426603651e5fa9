"""Gemma 3 text models: windows and full layers in turn, each with rotary positions of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 6
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 20,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
BOTH = {"use_bidirectional_attention": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "causal": {},
    "both_directions": BOTH,
    "both_directions_odd_window": {**BOTH, "sliding_window": WINDOW + 1},
    "not_causal": {"is_causal": False},
    "pattern_of_layers": {"layer_types": None, "sliding_window_pattern": 2},
    "biases": {"attention_bias": True},
    "linear_scaling": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "one_key_head": {"num_key_value_heads": 1},
}


def thetas(full: float, sliding: float) -> dict[str, Any]:
    """The rotary positions of both types of layer."""
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": sliding},
    }


CAUSAL_DEFECTS: dict[str, Any] = {
    "causal_mask_dropped": lambda tiny: tiny.with_config(is_causal=False),
    "window_too_wide": lambda tiny: tiny.with_config(sliding_window=WINDOW + 1),
    "window_too_narrow": lambda tiny: tiny.with_config(sliding_window=WINDOW - 1),
    "window_dropped": lambda tiny: tiny.with_config(sliding_window=1000),
    "layers_shifted": lambda tiny: tiny.with_config(
        layer_types=["full_attention", "sliding_attention", "sliding_attention"]
    ),
    "thetas_swapped": lambda tiny: tiny.with_config(rope_parameters=thetas(10_000.0, 1_000_000.0)),
    "other_scale_of_scores": lambda tiny: tiny.with_config(query_pre_attn_scalar=16),
    "other_activation": lambda tiny: tiny.with_config(hidden_activation="silu"),
    "norms_without_their_one": lambda tiny: tiny.with_tensor("norm.weight", lambda x: x - 1),
    "words_not_scaled": lambda tiny: tiny.with_tensor(
        "embed_tokens.weight", lambda x: x / np.float32(32**0.5)
    ),
}
BOTH_DEFECTS: dict[str, dict[str, Any]] = {
    "causal_after_all": {"use_bidirectional_attention": False},
    "window_too_wide": {"sliding_window": WINDOW + 2},
    "window_too_narrow": {"sliding_window": WINDOW - 1},
    "window_dropped": {"sliding_window": 1000},
}


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window."""
    return random_sequences((1, 2, 3, 4, 5, 7, 8, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3TextModel", **{**SIZES, **VARIANTS[name]})
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", in_part(CAUSAL_DEFECTS, "window_too_narrow", "thetas_swapped"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3TextModel", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(CAUSAL_DEFECTS[name](tiny), sequences())


@pytest.mark.parametrize("name", in_part(BOTH_DEFECTS, "causal_after_all", "window_too_wide"))
def test_planted_defects_are_found_in_both_directions(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3TextModel", **SIZES, **BOTH)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**BOTH_DEFECTS[name]), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3TextModel", **SIZES, **BOTH)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


def test_texts_are_classified(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3TextForSequenceClassification", **SIZES, num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)


def test_capped_logits_are_those_of_the_class(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Gemma3ForCausalLM", **SIZES, final_logit_softcapping=3.0)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(final_logit_softcapping=None), sequences(), HeadKind.VOCABULARY)
