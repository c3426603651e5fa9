"""Layerwise MiniCPM: a head after each of its later layers, one of which answers.

The class that these tests compare with was compared once with the published code of FlagEmbedding 1.4, on
transformers 4.57: for 8 pairs and random weights of 30 layers, the largest difference of scores was 4e-6.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.architectures.registry import has_foreign_code, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
PUBLISHED: Mapping[str, Any] = MappingProxyType(
    {
        "architectures": ["LayerWiseMiniCPMForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_minicpm_reranker.LayerWiseMiniCPMConfig",
            "AutoModel": "modeling_minicpm_reranker.LayerWiseMiniCPMModel",
            "AutoModelForCausalLM": "modeling_minicpm_reranker.LayerWiseMiniCPMForCausalLM",
        },
    }
)
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "attention_bias": False,
        "scale_emb": 3.0,
        "scale_depth": 1.4,
        "dim_model_base": 8,
        "start_layer": 2,
        "head_multi": True,
        "head_type": "simple",
        "cutoff_layers": [4],
    }
)
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "published": {},
        "first_head": {"cutoff_layers": [2]},
        "all_layers": {"cutoff_layers": [5]},
        "shared_keys_and_biases": {"num_key_value_heads": 2, "attention_bias": True},
    }
)
DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = MappingProxyType(
    {
        "another_layer": lambda tiny: tiny.with_config(cutoff_layers=[3]),
        "another_head": lambda tiny: tiny.with_tensor("lm_head.2.linear_head.weight", np.flip),
        "embeddings_not_scaled": lambda tiny: tiny.with_config(scale_emb=1),
        "residuals_not_scaled": lambda tiny: tiny.with_config(scale_depth=1),
        "other_epsilon": lambda tiny: tiny.with_config(rms_norm_eps=0.01),
        "other_theta": lambda tiny: tiny.with_config(rope_theta=10),
    }
)


def save(folder: Path, **settings: Any) -> TinyFamily:
    tiny = save_tiny_family(folder, "ReferenceLayerwiseMiniCpm", **{**SIZES, **settings})
    return tiny.with_config(**PUBLISHED)


def sequences() -> list[TokenSequence]:
    return random_sequences((1, 2, 5, 9, 20, 41), vocab_size=VOCABULARY)


@pytest.mark.parametrize("name", SETTINGS)
def test_scores_are_those_of_the_formulas(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, **SETTINGS[name]), sequences(), HeadKind.SEQUENCE, labels=1)


@pytest.mark.parametrize("name", in_part(DEFECTS, "another_layer", "residuals_not_scaled", "other_theta"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save(tmp_path)), sequences(), HeadKind.SEQUENCE, labels=1)


def test_layers_after_the_answering_one_are_not_read(tmp_path: Path) -> None:
    tiny = save(tmp_path)
    kept = {
        name: tensor
        for name, tensor in safetensors.numpy.load_file(tiny.weights_file).items()
        if not name.startswith("model.layers.4.")
    }
    safetensors.numpy.save_file(kept, tiny.weights_file)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=1)


def read(**settings: Any) -> Any:
    return read_encoder({**SIZES, **PUBLISHED, "model_type": "minicpm", **settings}, "config.json")


def test_layer_28_answers_unless_the_file_says_otherwise() -> None:
    published = {"num_hidden_layers": 40, "start_layer": 8, "cutoff_layers": None}
    assert (len(read(**published).layers), read(**published).answering_head) == (28, 20)
    assert len(read(**published | {"cutoff_layers": 40}).layers) == 40
    assert len(read(**published | {"num_hidden_layers": 12}).layers) == 12
    assert read(**published).residual_multiplier == pytest.approx(1.4 / 40**0.5)


def test_the_published_code_is_replaced() -> None:
    published = {**SIZES, **PUBLISHED, "model_type": "minicpm"}
    assert not has_foreign_code(published)
    others = {"AutoModel": "modeling_minicpm.MiniCPMModel"}
    assert has_foreign_code({**published, "architectures": ["MiniCPMModel"], "auto_map": others})
    assert not read().is_in_transformers


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"architectures": ["MiniCPMForCausalLM"], "auto_map": None}, UnsupportedModel, "only layerwise"),
        ({"head_type": "raw"}, UnsupportedModel, "head_type"),
        ({"head_multi": False}, UnsupportedModel, "head_multi"),
        ({"is_causal": False}, UnsupportedModel, "is_causal"),
        ({"head_dim": 16}, UnsupportedModel, "head_dim"),
        ({"cutoff_layers": [1]}, CorruptModel, "cutoff_layers is 1, but layers 2"),
        ({"cutoff_layers": [6]}, CorruptModel, "to 5 .num_hidden_layers. have a head"),
        ({"cutoff_layers": [3, 4]}, CorruptModel, "cutoff_layers must be a whole number"),
        ({"start_layer": 6, "cutoff_layers": None}, CorruptModel, "cutoff_layers is 5"),
        ({"scale_depth": 0}, CorruptModel, "scale_depth must be a number above 0"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(**settings)
