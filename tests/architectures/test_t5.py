"""The encoders of T5, mT5 and UMT5: biases by distance, attention without a scale, plain and gated units."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.graphs.distances import distance_buckets
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
FARTHEST = 20
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": FARTHEST,
}
CLASSES = ("T5", "MT5", "UMT5")
FEED_FORWARDS = ("relu", "gelu", "gated-gelu", "gated-silu")
DEFECTS: dict[str, Any] = {
    "distances_dropped": lambda tiny: tiny.with_tensor("relative_attention_bias.weight", np.zeros_like),
    "directions_swapped": lambda tiny: tiny.with_tensor(
        "relative_attention_bias.weight", lambda x: np.roll(x, 4, axis=0)
    ),
    "other_farthest_distance": lambda tiny: tiny.with_config(relative_attention_max_distance=FARTHEST + 8),
    "queries_scaled": lambda tiny: tiny.with_tensor("SelfAttention.q.weight", lambda x: x * 8**-0.5),
    "other_activation": lambda tiny: tiny.with_config(feed_forward_proj="gated-relu", dense_act_fn="relu"),
    "other_epsilon": lambda tiny: tiny.with_config(layer_norm_epsilon=0.01),
}
FIRST_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def sequences() -> list[TokenSequence]:
    """Within and beyond the farthest distance that has a bucket of its own."""
    return random_sequences((1, 2, 3, 5, 9, 20, 21, 50), vocab_size=VOCABULARY)


@pytest.mark.parametrize("feed_forward", FEED_FORWARDS)
@pytest.mark.parametrize("family", CLASSES)
def test_hidden_states_are_those_of_the_class(family: str, feed_forward: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}EncoderModel", **SIZES, feed_forward_proj=feed_forward)
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("family", CLASSES)
def test_the_default_unit_is_that_of_the_class(family: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}EncoderModel", **SIZES)
    unsaid = dict.fromkeys(("feed_forward_proj", "dense_act_fn", "is_gated_act"))
    assert_agrees(tiny.with_config(**unsaid), sequences())


@pytest.mark.parametrize("family", CLASSES)
def test_the_half_of_a_whole_model_is_the_encoder(family: str, tmp_path: Path) -> None:
    whole = save_tiny_family(tmp_path, f"{family}ForConditionalGeneration", **SIZES, num_decoder_layers=2)
    encoder = whole.reference.part("encoder", lambda model: model.get_encoder())
    assert_agrees(replace(whole, reference=encoder), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "other_farthest_distance", "other_epsilon"))
@pytest.mark.parametrize("family", ["T5", "UMT5"])
def test_planted_defects_are_found(family: str, name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}EncoderModel", **SIZES, feed_forward_proj="gated-gelu")
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](tiny), sequences())


def test_the_biases_of_the_first_layer_are_not_those_of_all_in_umt5(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "UMT5EncoderModel", **SIZES)
    first = safetensors.numpy.load_file(tiny.weights_file)[f"encoder.{FIRST_BIAS}"]
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_tensor("relative_attention_bias.weight", lambda _: first), sequences())
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(model_type="mt5"), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "T5EncoderModel", **SIZES)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("family", CLASSES)
def test_tokens_are_classified(family: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}ForTokenClassification", **SIZES, num_labels=5)
    assert_agrees(tiny, sequences(), HeadKind.TOKENS, labels=5)


@pytest.mark.parametrize(("count", "farthest"), [(8, 20), (32, 128), (32, 100), (64, 500), (12, 7), (10, 31)])
def test_buckets_are_those_of_the_class(count: int, farthest: int) -> None:
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-farthest - 50, farthest + 51)
    expected = T5Attention._relative_position_bucket(
        distances, bidirectional=True, num_buckets=count, max_distance=farthest
    ).numpy()
    inner = distance_buckets(count, farthest)
    assert np.array_equal(expected, np.pad(inner, 50, mode="edge"))
