"""EmbeddingGemma 2's text model: heads of two sizes, a signal for each layer, an output of its own width."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import (
    TinyFamily,
    assert_agrees,
    build_family,
    open_tiny_family,
    random_sequences,
    save_tiny_family,
)
from support.scales import in_part
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 4
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 16,
    "embedding_dim": 24,
}
ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}
VARIANTS: Mapping[str, dict[str, Any]] = {
    "published": {},
    "biases": {"attention_bias": True},
    "by_period": {"layer_types": None, "sliding_window_pattern": 2},
    "last_layer_has_a_window": {"layer_types": ["sliding_attention"] * 4},
    "same_heads": {"per_layer_config": {}},
    "other_heads": {"per_layer_config": {1: {"head_dim": 4}, 3: {"head_dim": 4}}},
    "scaled": {"rope_parameters": ROPES},
    "wide_output": {"embedding_dim": 80},
    "other_activation": {"hidden_activation": "silu"},
}


def thetas(full: float, sliding: float) -> dict[str, Any]:
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": sliding},
    }


DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = {
    "window_too_wide": lambda tiny: tiny.with_config(sliding_window=WINDOW + 1),
    "window_too_narrow": lambda tiny: tiny.with_config(sliding_window=WINDOW - 1),
    "thetas_swapped": lambda tiny: tiny.with_config(rope_parameters=thetas(10_000.0, 1_000_000.0)),
    "other_activation": lambda tiny: tiny.with_config(hidden_activation="silu"),
    "words_not_scaled": lambda tiny: tiny.with_tensor(
        "embed_tokens.weight", lambda x: x / np.float32(32**0.5)
    ),
    "layers_not_scaled": lambda tiny: tiny.with_tensor("layer_scalar", np.ones_like),
    "signals_of_other_layers": lambda tiny: tiny.with_tensor(
        "per_layer_model_projection.weight", lambda x: np.roll(x, 16, axis=0)
    ),
    "signals_without_weights": lambda tiny: tiny.with_tensor(
        "per_layer_projection_norm.weight", np.ones_like
    ),
    "no_signals": lambda tiny: tiny.with_tensor("post_per_layer_input_norm.weight", np.zeros_like),
    "other_projection": lambda tiny: tiny.with_tensor(
        "embedding_projection.weight", lambda x: np.roll(x, 1, axis=0)
    ),
    "other_norm_of_heads": lambda tiny: tiny.with_tensor("q_norm.weight", lambda x: np.roll(x, 1)),
    "other_epsilon": lambda tiny: tiny.with_config(rms_norm_eps=0.01),
}


def save(folder: Path, **settings: Any) -> TinyFamily:
    """A model whose layers are scaled, as those of the published weights are."""
    tiny = save_tiny_family(folder, "EmbeddingGemma2TextModel", **{**SIZES, **settings})
    tensors = safetensors.numpy.load_file(tiny.weights_file)
    for number in range(tiny.config["num_hidden_layers"]):
        tensors[f"layers.{number}.layer_scalar"] = np.full(1, 0.5 + 0.2 * number, np.float32)
    safetensors.numpy.save_file(tensors, tiny.weights_file, {"format": "pt"})
    return open_tiny_family(folder, "EmbeddingGemma2TextModel")


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window."""
    return random_sequences((1, 2, 4, 5, 6, 9, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, **VARIANTS[name]), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "window_too_wide", "layers_not_scaled", "other_projection"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save(tmp_path)), sequences())


def test_values_without_norms_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save(tmp_path)
    graph = "vecmill.architectures.embedding_gemma2_graph.EmbeddingGemma2.finish_value"
    monkeypatch.setattr(graph, lambda _, value: value)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save(tmp_path)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


def test_a_wrong_size_of_heads_is_found_in_the_weights(tmp_path: Path) -> None:
    tiny = save(tmp_path)
    with pytest.raises(CorruptModel, match=r"layers\.1\.self_attn\.q_proj\.weight"):
        build_family(tiny.with_config(per_layer_config={"1": {"head_dim": 8, "num_key_value_heads": 1}}))


PLACES = {"image_token_id": 7, "video_token_id": 8, "audio_token_id": 9}


def save_composed(folder: Path) -> TinyFamily:
    """A model as published, whose parts for images and sound are left out."""
    return save_tiny_family(
        folder, "EmbeddingGemma2Model", text_config=SIZES, vision_config=None, audio_config=None, **PLACES
    )


def sequences_with_places() -> list[TokenSequence]:
    return random_sequences((1, 5, 20, 41), vocab_size=VOCABULARY, often=[*PLACES.values()])


def test_texts_of_the_whole_model_are_those_of_the_class(tmp_path: Path) -> None:
    tiny = save_composed(tmp_path)
    assert tiny.config["model_type"] == "embedding_gemma2"
    assert_agrees(tiny, sequences_with_places())


def test_tokens_that_stand_for_images_are_no_words(tmp_path: Path) -> None:
    tiny = save_composed(tmp_path)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(image_token_id=None), sequences_with_places())


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"text_config": 1}, CorruptModel, "text_config must be an object"),
        ({"text_config": {"model_type": "gemma4_text"}}, UnsupportedModel, "model_type 'gemma4_text'"),
        ({"text_config": {"pad_token_id": None}}, CorruptModel, "pad_token_id must be a token of"),
        ({"text_config": {"pad_token_id": -1}}, CorruptModel, "pad_token_id must be a token of"),
        ({"text_config": {"embedding_dim": 0}}, CorruptModel, "embedding_dim must be"),
        ({"image_token_id": "<image>"}, CorruptModel, "image_token_id must be a token id"),
    ],
)
def test_settings_of_the_whole_model_that_no_graph_has_are_refused(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder({"model_type": "embedding_gemma2", **config}, "config.json")


@pytest.mark.parametrize("head", [HeadKind.SEQUENCE, HeadKind.TOKENS, HeadKind.VOCABULARY])
def test_there_are_no_heads(head: HeadKind, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="EmbeddingGemma2 models with a"):
        build_family(save(tmp_path), head, labels=3)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"embedding_dim": 0}, CorruptModel, "embedding_dim must be"),
        ({"embedding_dim": 2**40}, CorruptModel, "embedding_dim must be"),
        ({"hidden_size_per_layer_input": 0}, CorruptModel, "hidden_size_per_layer_input must be"),
        ({"sliding_window_pattern": 0}, CorruptModel, "sliding_window_pattern must be"),
        ({"global_head_dim": 7}, CorruptModel, "heads of 7 dimensions"),
        ({"num_global_key_value_heads": 3}, CorruptModel, "not a multiple"),
        ({"per_layer_config": []}, CorruptModel, "per_layer_config must be an object"),
        ({"per_layer_config": {"24": {}}}, CorruptModel, "is not the number of one of the 24 layers"),
        ({"per_layer_config": {"-1": {}}}, CorruptModel, "is not the number"),
        ({"per_layer_config": {"9" * 5000: {}}}, CorruptModel, "is not the number"),
        ({"per_layer_config": {"0": 1}}, CorruptModel, "0 must be an object"),
        ({"per_layer_config": {"0": {"head_dim": 0}}}, CorruptModel, "head_dim must be"),
        ({"per_layer_config": {"0": {"hidden_size": 1}}}, UnsupportedModel, "hidden_size is not supported"),
        ({"per_layer_config": {"0": {"skip": ["mlp"]}}}, UnsupportedModel, "skip is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, UnsupportedModel, "rope_scaling"),
        ({"rope_theta": 10_000}, UnsupportedModel, "rope_theta"),
        ({"is_causal": True}, UnsupportedModel, "is_causal"),
        ({"layer_types": ["conv"] * 24}, UnsupportedModel, "layer_types"),
    ],
)
def test_settings_that_no_graph_has_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder({"model_type": "embedding_gemma2_text", **settings}, "config.json")
