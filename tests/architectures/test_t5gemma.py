"""The encoder of T5Gemma: Gemma 2 in both directions, by itself or in the file of a whole model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, build_family, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
WINDOW = 5
ENCODER: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 20,
    "sliding_window": WINDOW,
    "attn_logit_softcapping": 2.0,
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "published": {},
    "biases": {"attention_bias": True},
    "no_cap": {"attn_logit_softcapping": None},
    "full_layers": {"layer_types": ["full_attention"] * 3},
    "scaled": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}},
}
DEFECTS: Mapping[str, Mapping[str, Any]] = {
    "window_too_wide": {"sliding_window": WINDOW + 1},
    "window_too_narrow": {"sliding_window": WINDOW - 1},
    "no_cap": {"attn_logit_softcapping": None},
    "other_scale_of_scores": {"query_pre_attn_scalar": 16},
    "other_activation": {"hidden_activation": "silu"},
    "layers_shifted": {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
}


def save(folder: Path, class_name: str = "T5GemmaEncoderModel", **settings: Any) -> TinyFamily:
    encoder = {**ENCODER, **settings}
    is_whole = class_name != "T5GemmaEncoderModel"
    return save_tiny_family(
        folder,
        class_name,
        encoder=encoder,
        decoder=encoder,
        vocab_size=VOCABULARY,
        is_encoder_decoder=is_whole,
    )


def with_encoder(tiny: TinyFamily, **changes: Any) -> TinyFamily:
    return tiny.with_config(encoder={**tiny.config["encoder"], **changes})


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window."""
    return random_sequences((1, 2, 5, 6, 7, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, **VARIANTS[name]), sequences())


@pytest.mark.parametrize("class_name", ["T5GemmaModel", "T5GemmaForConditionalGeneration"])
def test_the_encoder_of_a_whole_model_is_found(class_name: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, class_name)
    encoder = tiny.reference.part("encoder", lambda model: model.get_encoder())
    assert_agrees(replace(tiny, reference=encoder), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "window_too_narrow", "no_cap"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(with_encoder(save(tmp_path), **DEFECTS[name]), sequences())


def test_exchanged_norms_are_found(tmp_path: Path) -> None:
    tiny = save(tmp_path).with_tensor("post_self_attn_layernorm.weight", lambda x: np.roll(x, 1))
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("head", [HeadKind.SEQUENCE, HeadKind.TOKENS, HeadKind.VOCABULARY])
def test_there_are_no_heads(head: HeadKind, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="T5Gemma models with a"):
        build_family(save(tmp_path), head, labels=3)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"encoder": []}, CorruptModel, "encoder must be an object"),
        ({"encoder": {"model_type": "t5"}}, UnsupportedModel, "model_type 't5'"),
        ({"encoder": {"sliding_window": 0}}, CorruptModel, "sliding_window must be"),
        ({"encoder": {"head_dim": 7}}, CorruptModel, "heads of 7 dimensions"),
    ],
)
def test_settings_that_no_graph_has_are_refused(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder({"model_type": "t5gemma", **config}, "config.json")
