"""ModernBERT: local windows and global layers in turn, rotary positions, gated units, and its three heads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 8
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "local_attention": WINDOW,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "as_usual": {},
    "biases": BIASES,
    "odd_window": {"local_attention": WINDOW + 1},
    "period_of_layers": {"global_attn_every_n_layers": 2},
    "old_thetas": {"global_rope_theta": 5000.0, "local_rope_theta": 300.0},
    "linear_scaling": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "other_activation": {"hidden_activation": "silu"},
}


def thetas(full: float, sliding: float) -> dict[str, Any]:
    """The rotary positions of both types of layer."""
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": sliding},
    }


def swap_halves(matrix: FloatArray) -> FloatArray:
    """The gate where the value was."""
    return np.roll(matrix, len(matrix) // 2, axis=0)


DEFECTS: dict[str, Any] = {
    "window_too_wide": lambda tiny: tiny.with_config(local_attention=WINDOW + 2),
    "window_too_narrow": lambda tiny: tiny.with_config(local_attention=WINDOW - 1),
    "window_dropped": lambda tiny: tiny.with_config(local_attention=1000),
    "layers_shifted": lambda tiny: tiny.with_config(
        layer_types=["sliding_attention", *["full_attention", "sliding_attention", "sliding_attention"]]
    ),
    "thetas_swapped": lambda tiny: tiny.with_config(rope_parameters=thetas(10_000.0, 160_000.0)),
    "other_activation": lambda tiny: tiny.with_config(hidden_activation="gelu_new"),
    "other_epsilon": lambda tiny: tiny.with_config(norm_eps=0.01),
    "gate_and_value_swapped": lambda tiny: tiny.with_tensor("mlp.Wi.weight", swap_halves),
}
HEADS: dict[str, tuple[str, HeadKind, dict[str, Any]]] = {
    "sequence_cls": ("ModernBertForSequenceClassification", HeadKind.SEQUENCE, {"classifier_pooling": "cls"}),
    "sequence_mean": (
        "ModernBertForSequenceClassification",
        HeadKind.SEQUENCE,
        {"classifier_pooling": "mean"},
    ),
    "sequence_biases": ("ModernBertForSequenceClassification", HeadKind.SEQUENCE, BIASES),
    "tokens": ("ModernBertForTokenClassification", HeadKind.TOKENS, {}),
    "vocabulary": ("ModernBertForMaskedLM", HeadKind.VOCABULARY, {}),
    "vocabulary_no_bias": ("ModernBertForMaskedLM", HeadKind.VOCABULARY, {"decoder_bias": False}),
    "vocabulary_untied": ("ModernBertForMaskedLM", HeadKind.VOCABULARY, {"tie_word_embeddings": False}),
}
HEAD_DEFECTS: dict[str, dict[str, Any]] = {
    "other_pooling": {"classifier_pooling": "mean"},
    "other_activation": {"classifier_activation": "relu"},
}


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window and half of it, some with padding tokens inside."""
    return random_sequences((1, 2, 4, 5, 6, 9, 10, 11, 30, 41), vocab_size=VOCABULARY, often=[0])


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "ModernBertModel", **{**SIZES, **VARIANTS[name]})
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "window_too_wide", "gate_and_value_swapped"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "ModernBertModel", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](tiny), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "ModernBertModel", **SIZES)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", HEADS)
def test_logits_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    class_name, head, settings = HEADS[name]
    tiny = save_tiny_family(tmp_path, class_name, **{**SIZES, **settings, "num_labels": 3})
    assert_agrees(tiny, sequences(), head, labels=3)


@pytest.mark.parametrize("name", HEAD_DEFECTS)
def test_planted_defects_of_the_head_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "ModernBertForSequenceClassification", **SIZES, num_labels=3)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**HEAD_DEFECTS[name]), sequences(), HeadKind.SEQUENCE, labels=3)
