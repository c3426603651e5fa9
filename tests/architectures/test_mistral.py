"""Mistral: causal, grouped queries, one sliding window for all layers."""

from pathlib import Path
from typing import Any

import pytest

from support.families import assert_agrees, random_sequences, save_tiny_family
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 7
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": WINDOW,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "window": {},
    "no_window": {"sliding_window": None},
    "own_head_dim": {"head_dim": 16},
    "both_directions": {"is_causal": False},
    "both_directions_no_window": {"is_causal": False, "sliding_window": None},
}
DEFECTS: dict[str, dict[str, Any]] = {
    "causal_mask_dropped": {"is_causal": False},
    "window_dropped": {"sliding_window": None},
    "window_too_wide": {"sliding_window": WINDOW + 1},
    "window_too_narrow": {"sliding_window": WINDOW - 1},
    "positions_stretched": {"rope_parameters": {"rope_type": "linear", "factor": 1.1}},
    "other_theta": {"rope_parameters": {"rope_theta": 20_000.0}},
    "other_activation": {"hidden_act": "gelu"},
}


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window."""
    return random_sequences((1, 2, 6, 7, 8, 9, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save_tiny_family(tmp_path, "MistralModel", **{**SIZES, **VARIANTS[name]}), sequences())


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "MistralModel", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**DEFECTS[name]), sequences())


def test_texts_are_classified(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "MistralForSequenceClassification", **SIZES, num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)
