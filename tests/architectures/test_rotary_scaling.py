"""Scaled rotary positions are transformers', for every length that we serve and whoever shares the batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from vecmill.errors import CorruptModel
from vecmill.graphs.rotary import rotary_frequencies
from vecmill.models.rope import LongScaling, Rope

VOCABULARY = 60
TRAINED, LONGEST = 16, 48
HALF = 4  # frequencies of a head
LENGTHS = [1, 2, TRAINED - 1, TRAINED, TRAINED + 1, 30, LONGEST]
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 2 * HALF,
    "max_position_embeddings": LONGEST,
    "pad_token_id": 0,
}

SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 3.0},
    "yarn_unrounded": {
        "rope_type": "yarn",
        "factor": 3.0,
        "truncate": False,
        "beta_fast": 2,
        "beta_slow": 0.5,
    },
    "yarn_attention": {"rope_type": "yarn", "factor": 3.0, "attention_factor": 1.5},
    "yarn_mscale": {"rope_type": "yarn", "factor": 3.0, "mscale": 2.0, "mscale_all_dim": 0.5},
    "yarn_ratio": {"rope_type": "yarn", "factor": None},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.7],
        "long_factor": [2.0, 3.0, 5.0, 9.0],
    },
    "longrope_attention": {
        "rope_type": "longrope",
        "short_factor": [1.0] * HALF,
        "long_factor": [4.0] * HALF,
        "attention_factor": 1.25,
        "factor": 3.0,
    },
}


def save_scaled(folder: Path, scaling: dict[str, Any], **settings: Any) -> TinyFamily:
    parameters = {"original_max_position_embeddings": TRAINED, "rope_theta": 50.0, **scaling}
    return save_tiny_family(folder, "Qwen3Model", **{**SIZES, "rope_parameters": parameters, **settings})


def sequences() -> Any:
    return random_sequences(LENGTHS, vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", SCALINGS)
def test_each_scaling_gives_the_rows_of_transformers(tmp_path: Path, name: str) -> None:
    tiny = save_scaled(tmp_path, SCALINGS[name])
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", sorted(set(SCALINGS) - {"dynamic"}))
def test_leaving_a_scaling_out_is_noticed(tmp_path: Path, name: str) -> None:
    tiny = save_scaled(tmp_path, SCALINGS[name])
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(rope_parameters={"rope_theta": 50.0}), sequences())


def test_only_long_texts_have_the_factors_of_long_texts(tmp_path: Path) -> None:
    tiny = save_scaled(tmp_path, SCALINGS["longrope"])
    written = {**tiny.config["rope_parameters"], "long_factor": [1.0] * HALF}
    changed = tiny.with_config(rope_parameters=written)
    short, long = (random_sequences([length], vocab_size=VOCABULARY) for length in (TRAINED, TRAINED + 1))
    np.testing.assert_array_equal(changed.compute(short), tiny.compute(short))
    assert np.abs(changed.compute(long) - tiny.compute(long)).max() > 1e-2


@pytest.mark.parametrize("name", ["linear", "llama3", "yarn", "longrope"])
def test_layers_that_see_everything_are_scaled_alone(tmp_path: Path, name: str) -> None:
    parameters = {
        "full_attention": {"rope_theta": 50.0, "original_max_position_embeddings": TRAINED, **SCALINGS[name]},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    }
    types = ["sliding_attention", "full_attention"]
    settings = {**SIZES, "layer_types": types, "sliding_window": 8, "rope_parameters": parameters}
    assert_agrees(save_tiny_family(tmp_path, "Gemma3TextModel", **settings), sequences())


def test_the_length_of_training_may_stand_beside(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 99}
    tiny = save_scaled(tmp_path, scaling, original_max_position_embeddings=TRAINED)
    assert_agrees(tiny, sequences())


def test_factors_of_another_width_are_noticed() -> None:
    rope = Rope(50.0, scaling=LongScaling((1.0, 1.0), (1.0, 1.0), trained_tokens=16, attention=1.0))
    with pytest.raises(CorruptModel, match="short_factor lists 2 numbers; heads of 8 dimensions need 4"):
        rotary_frequencies(rope, 8)
