"""Decoders of the plain kind, Llama and Mistral; and what it takes to add another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.families import assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.architectures import decoder, registry
from vecmill.architectures.decoder import LlamaConfig
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
}
MISTRAL: dict[str, Any] = {**SIZES, "sliding_window": WINDOW}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaModel", SIZES),
    "llama_own_key_heads": ("LlamaModel", {**SIZES, "num_key_value_heads": None}),
    "llama_own_head_dim": ("LlamaModel", {**SIZES, "head_dim": 16}),
    "llama_biases": ("LlamaModel", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    "llama_both_directions": ("LlamaModel", {**SIZES, "is_causal": False}),
    "llama_scaled": (
        "LlamaModel",
        {
            **SIZES,
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_theta": 500.0,
            },
        },
    ),
    "mistral": ("MistralModel", MISTRAL),
    "mistral_no_window": ("MistralModel", {**MISTRAL, "sliding_window": None}),
    "mistral_own_head_dim": ("MistralModel", {**MISTRAL, "head_dim": 16}),
    "mistral_both_directions": ("MistralModel", {**MISTRAL, "is_causal": False}),
    "mistral_both_directions_no_window": (
        "MistralModel",
        {**MISTRAL, "is_causal": False, "sliding_window": None},
    ),
}
LLAMA_DEFECTS: dict[str, dict[str, Any]] = {
    "causal_mask_dropped": {"is_causal": False},
    "biases_dropped": {"attention_bias": False},
    "inner_biases_dropped": {"mlp_bias": False},
    "positions_stretched": {"rope_parameters": {"rope_type": "linear", "factor": 1.1}},
    "other_theta": {"rope_parameters": {"rope_theta": 20_000.0}},
    "other_activation": {"hidden_act": "gelu"},
}
MISTRAL_DEFECTS: dict[str, dict[str, Any]] = {
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
    class_name, settings = VARIANTS[name]
    assert_agrees(save_tiny_family(tmp_path, class_name, **settings), sequences())


@pytest.mark.parametrize("name", in_part(LLAMA_DEFECTS, "inner_biases_dropped", "positions_stretched"))
def test_planted_defects_are_found_in_llama(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "LlamaModel", **SIZES, attention_bias=True, mlp_bias=True)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**LLAMA_DEFECTS[name]), sequences())


@pytest.mark.parametrize("name", in_part(MISTRAL_DEFECTS, "causal_mask_dropped", "window_too_wide"))
def test_planted_defects_are_found_in_mistral(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "MistralModel", **MISTRAL)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**MISTRAL_DEFECTS[name]), sequences())


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_texts_are_classified(name: str, tmp_path: Path) -> None:
    class_name, settings = VARIANTS[name]
    class_name = class_name.replace("Model", "ForSequenceClassification")
    tiny = save_tiny_family(tmp_path, class_name, **settings, num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)


@pytest.mark.parametrize("tied", [True, False])
def test_the_language_model_predicts_as_the_class(tied: bool, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "LlamaForCausalLM", **SIZES, tie_word_embeddings=tied)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)


class BidirectionalLlamaConfig(LlamaConfig):
    """A Llama that attends in both directions though its file does not say so."""

    defaults = replace(LlamaConfig.defaults, is_causal=False)


def test_another_decoder_takes_a_class_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "LlamaModel", **SIZES, is_causal=False)
    config = {key: value for key, value in tiny.config.items() if key != "is_causal"}
    tiny = replace(tiny, config={**config, "model_type": "llama_both_ways"})
    monkeypatch.setattr(decoder, "BidirectionalLlamaConfig", BidirectionalLlamaConfig, raising=False)
    monkeypatch.setitem(registry.ARCHITECTURES, "llama_both_ways", "decoder:BidirectionalLlamaConfig")
    assert_agrees(tiny, sequences())
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(model_type="llama"), sequences())
