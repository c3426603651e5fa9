"""Language models that differ from Llama in a detail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part, one_of_each
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
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
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
BIASES: dict[str, Any] = {"attention_bias": True, "mlp_bias": True}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "rope_theta": 500.0,
}
Defect = Callable[[TinyFamily], TinyFamily]


def configured(**changes: Any) -> Defect:
    return lambda tiny: tiny.with_config(**changes)


def changed(suffix: str, change: Callable[[Any], Any]) -> Defect:
    return lambda tiny: tiny.with_tensor(suffix, change)


def rolled(suffix: str) -> Defect:
    return changed(suffix, lambda tensor: np.roll(tensor, 1, axis=0))


@dataclass(frozen=True, slots=True)
class Family:
    """An architecture: the stem of its classes, its settings, variants of them, and planted defects."""

    stem: str
    settings: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    defects: Mapping[str, Defect] = field(default_factory=dict)


SHARED: dict[str, Defect] = {
    "causal_mask_dropped": configured(is_causal=False),
    "other_activation": configured(hidden_act="gelu"),
    "other_epsilon": configured(rms_norm_eps=0.01),
}
WINDOWS: dict[str, Defect] = {
    "window_too_wide": configured(sliding_window=WINDOW + 1),
    "window_too_narrow": configured(sliding_window=WINDOW - 1),
}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 4.0,
}
GROWING: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.5,
}


def growing(**changes: Any) -> dict[str, Any]:
    return {"rope_parameters": {**GROWING, **changes}}


FAMILIES: dict[str, Family] = {
    "granite": Family(
        "Granite",
        {**SIZES, **GRANITE},
        {"biases": BIASES, "no_multipliers": dict.fromkeys(GRANITE, 1.0), "both_ways": {"is_causal": False}},
        {
            **SHARED,
            **{f"{name}_dropped": configured(**{name: 1.0}) for name in GRANITE if name != "logits_scaling"},
        },
    ),
    "ministral": Family(
        "Ministral",
        {**SIZES, "head_dim": 16, "sliding_window": WINDOW, "layer_types": SLIDING},
        {"all_layers": {"layer_types": None}},
        {**SHARED, **WINDOWS, "layers_shifted": configured(layer_types=SLIDING[1:] + SLIDING[:1])},
    ),
    "ministral3": Family(
        "Ministral3",
        {**SIZES, "head_dim": 16, "max_position_embeddings": 64, **growing()},
        {
            "both_ways": {"is_causal": False},
            "window": {"sliding_window": WINDOW},
            "default_positions": {"rope_parameters": None},
            "unscaled": {
                "rope_parameters": {
                    "rope_type": "default",
                    "llama_4_scaling_beta": 0.5,
                    "original_max_position_embeddings": 8,
                }
            },
            "by_the_longest_input": {
                "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "llama_4_scaling_beta": 0.5},
                "max_position_embeddings": 16,
            },
            "no_growth": growing(llama_4_scaling_beta=0),
        },
        {
            **SHARED,
            "no_growth": configured(**growing(llama_4_scaling_beta=0)),
            "other_weight_of_growth": configured(**growing(llama_4_scaling_beta=0.4)),
            "growth_begins_later": configured(**growing(original_max_position_embeddings=9)),
            "other_scaling": configured(**growing(factor=5.0)),
            "window": configured(sliding_window=WINDOW),
        },
    ),
    "seed_oss": Family(
        "SeedOss",
        {**SIZES, "head_dim": 16, "attention_out_bias": True},
        {"no_biases": {"attention_bias": False, "attention_out_bias": False}, "biases": {"mlp_bias": True}},
        {
            **SHARED,
            "bias_dropped": configured(attention_out_bias=False),
            "query_bias_dropped": configured(attention_bias=False),
        },
    ),
    "smollm3": Family(
        "SmolLM3",
        {**SIZES, "no_rope_layers": [1, 0, 1]},
        {
            "by_interval": {"no_rope_layers": None, "no_rope_layer_interval": 2},
            "biases": BIASES,
            "windows": {"use_sliding_window": True, "sliding_window": WINDOW},
        },
        {
            **SHARED,
            "positions_everywhere": configured(no_rope_layers=[1, 1, 1]),
            "positions_of_another_layer": configured(no_rope_layers=[0, 1, 1]),
        },
    ),
    "olmo2": Family(
        "Olmo2",
        SIZES,
        {"biases": {"attention_bias": True}, "own_key_heads": {"num_key_value_heads": 4}},
        {
            **SHARED,
            "norm_of_another_head": rolled("q_norm.weight"),
            "key_norm": rolled("k_norm.weight"),
            "norm_after": rolled("post_feedforward_layernorm.weight"),
        },
    ),
    "olmo3": Family(
        "Olmo3",
        {**SIZES, "sliding_window": WINDOW, "layer_types": SLIDING},
        {
            "default_layers": {"layer_types": None, "num_hidden_layers": 5},
            "scaled": {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                }
            },
        },
        {**SHARED, **WINDOWS},
    ),
    "exaone4": Family(
        "Exaone4",
        {**SIZES, "sliding_window": WINDOW, "layer_types": SLIDING},
        {
            "no_window": {"layer_types": ["full_attention"] * 3, "sliding_window": None},
            "by_pattern": {"layer_types": None, "sliding_window_pattern": 2},
        },
        {**SHARED, **WINDOWS, "norm_of_heads": rolled("q_norm.weight")},
    ),
    "phi3": Family(
        "Phi3",
        SIZES,
        {
            "window": {"sliding_window": WINDOW},
            "long": {
                "max_position_embeddings": 64,
                "original_max_position_embeddings": 16,
                "rope_parameters": LONGROPE,
            },
        },
        {**SHARED, "heads_rolled": rolled("qkv_proj.weight"), "sides_rolled": rolled("gate_up_proj.weight")},
    ),
}
VARIANTS = [(name, variant) for name, family in FAMILIES.items() for variant in ("plain", *family.variants)]
DEFECTS = [(name, defect) for name, family in FAMILIES.items() for defect in family.defects]


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window, and than the trained positions of `LONGROPE`."""
    return random_sequences((1, 2, 5, 6, 7, 16, 17, 41), vocab_size=VOCABULARY)


def save(folder: Path, name: str, class_name: str = "Model", **settings: Any) -> TinyFamily:
    family = FAMILIES[name]
    return save_tiny_family(folder, f"{family.stem}{class_name}", **{**family.settings, **settings})


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, variant: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, name, **FAMILIES[name].variants.get(variant, {})), sequences())


@pytest.mark.parametrize(
    ("name", "defect"),
    in_part(DEFECTS, *one_of_each(DEFECTS, lambda case: case[1]), ("olmo3", "window_too_narrow")),
)
def test_planted_defects_are_found(name: str, defect: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, name)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(FAMILIES[name].defects[defect](tiny), sequences())


@pytest.mark.parametrize(
    "name", ["ministral", "ministral3", "smollm3", "phi3", "seed_oss", "exaone4", "olmo2"]
)
def test_texts_are_classified(name: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, name, "ForSequenceClassification", num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_language_model_predicts_as_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, name, "ForCausalLM"), sequences(), HeadKind.VOCABULARY)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_positions_by_length_depend_on_later_tokens(name: str) -> None:
    config = {**FAMILIES[name].settings, "model_type": name}
    assert read_encoder(config, "config.json").is_causal
    assert not read_encoder({**config, "is_causal": False}, "config.json").is_causal
    growth = {"llama_4_scaling_beta": 0.1}
    scaled = {"full_attention": LONGROPE} if name == "olmo3" else {**LONGROPE, **growth}
    assert not read_encoder({**config, "rope_parameters": scaled}, "config.json").is_causal


@pytest.mark.parametrize("labels", [1, 3])
def test_a_classifier_in_both_directions_reads_the_last_token(labels: int, tmp_path: Path) -> None:
    tiny = save(tmp_path, "ministral3", "ForSequenceClassification", num_labels=labels, is_causal=False)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=labels)


def test_older_keys_of_scaling_are_read(tmp_path: Path) -> None:
    tiny = save(tmp_path, "ministral3")
    older = {key: value for key, value in tiny.config.items() if key != "rope_parameters"}
    older["rope_scaling"] = {"type": "yarn"} | {key: GROWING[key] for key in GROWING if key != "rope_type"}
    assert read_encoder(older, "config.json") == read_encoder(tiny.config, "config.json")


def test_logits_of_granite_are_divided(tmp_path: Path) -> None:
    tiny = save(tmp_path, "granite", "ForCausalLM")
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(logits_scaling=1.0), sequences(), HeadKind.VOCABULARY)


def test_older_names_of_longrope_are_read(tmp_path: Path) -> None:
    tiny = save(tmp_path, "phi3", **FAMILIES["phi3"].variants["long"])
    kept = {key: value for key, value in tiny.config.items() if key != "rope_parameters"}
    scaling = {"type": "su", "short_factor": LONGROPE["short_factor"], "long_factor": LONGROPE["long_factor"]}
    older = {**kept, "rope_scaling": scaling, "rope_theta": LONGROPE["rope_theta"]}
    assert read_encoder(older, "config.json") == read_encoder(tiny.config, "config.json")


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"model_type": "smollm3", "no_rope_layers": [1]}, CorruptModel, "no_rope_layers must list"),
        ({"model_type": "smollm3", "no_rope_layers": [2] * 36}, CorruptModel, "no_rope_layers must list"),
        ({"model_type": "granite", "residual_multiplier": 0}, CorruptModel, "residual_multiplier must be"),
        ({"model_type": "olmo3", "rope_theta": 10_000}, UnsupportedModel, "rope_theta 10000"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, CorruptModel, "sliding_window_pattern"),
        (
            {"model_type": "ministral3", "rope_parameters": {}},
            CorruptModel,
            "llama_4_scaling_beta and original",
        ),
        (
            {"model_type": "ministral3", **growing(llama_4_scaling_beta=-1)},
            CorruptModel,
            "llama_4_scaling_beta",
        ),
        (
            {"model_type": "ministral3", **growing(llama_4_scaling_beta=True)},
            CorruptModel,
            "llama_4_scaling_beta",
        ),
        ({"model_type": "ministral3", **growing(llama_4_scaling_beta=1e99)}, CorruptModel, "llama_4_scaling"),
        (
            {"model_type": "ministral3", **growing(original_max_position_embeddings=0)},
            CorruptModel,
            "original_max_position_embeddings",
        ),
        ({"model_type": "ministral3", "attention_bias": True}, UnsupportedModel, "attention_bias"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.5}, UnsupportedModel, "partial_rotary_factor"),
        (
            {"model_type": "seed_oss", "use_bidirectional_attention": True},
            UnsupportedModel,
            "use_bidirectional",
        ),
    ],
)
def test_settings_that_no_graph_has_are_refused(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder(config, "config.json")
