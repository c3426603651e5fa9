"""NomicBERT and GTE: BERT with rotary positions and gated units, under both names of its tensors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
TYPES = 2
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "type_vocab_size": TYPES,
}
FAMILIES = ("NomicBert", "Gte")
HEADS = {
    "ForSequenceClassification": HeadKind.SEQUENCE,
    "ForTokenClassification": HeadKind.TOKENS,
    "ForMaskedLM": HeadKind.VOCABULARY,
}
DEFECTS: dict[str, Any] = {
    "positions_stretched": lambda tiny: tiny.with_config(
        rope_parameters={"rope_type": "linear", "factor": 1.1, "rope_theta": 1000.0}
    ),
    "other_theta": lambda tiny: tiny.with_config(rope_parameters={"rope_theta": 2000.0}),
    "other_activation": lambda tiny: tiny.with_config(hidden_act="relu"),
    "other_epsilon": lambda tiny: tiny.with_config(layer_norm_eps=0.01),
    "token_types_swapped": lambda tiny: tiny.with_tensor("token_type_embeddings.weight", np.flipud),
}


def swap_halves(matrix: FloatArray) -> FloatArray:
    """The gate where the value was."""
    return np.roll(matrix, len(matrix) // 2, axis=0)


def sequences() -> list[TokenSequence]:
    """Of both token types, some with padding tokens inside."""
    return random_sequences((1, 2, 3, 8, 20, 41), vocab_size=VOCABULARY, token_types=TYPES, often=[0, 1])


def name_tensors(model: Any) -> dict[str, FloatArray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def rename(tiny: TinyFamily, names: dict[str, FloatArray]) -> TinyFamily:
    """The same, with these tensors in the file that our side reads."""
    path = tiny.weights_file.with_name("renamed.safetensors")
    safetensors.numpy.save_file(names, path)
    return replace(tiny, weights_file=path)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_of_the_class(family: str, tmp_path: Path) -> None:
    assert_agrees(save_tiny_family(tmp_path, f"{family}Model", **SIZES), sequences())


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_are_read_under_the_names_that_transformers_computes_with(
    family: str, tmp_path: Path
) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}ForMaskedLM", **SIZES)
    own = tiny.reference.ask("state_dict", name_tensors)
    assert not own.keys() <= safetensors.numpy.load_file(tiny.weights_file).keys()
    assert_agrees(rename(tiny, own), sequences(), HeadKind.VOCABULARY)


def test_linear_scaling_is_that_of_the_class(tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}
    assert_agrees(save_tiny_family(tmp_path, "GteModel", **SIZES, rope_parameters=scaling), sequences())


def test_a_model_without_token_types_needs_no_table_of_them(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "GteModel", **{**SIZES, "type_vocab_size": 0})
    assert_agrees(tiny, random_sequences((1, 2, 20), vocab_size=VOCABULARY))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", in_part(DEFECTS, "positions_stretched", "token_types_swapped"))
def test_planted_defects_are_found(name: str, family: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"{family}Model", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](tiny), sequences())


def test_a_gate_in_the_place_of_the_value_is_found(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "GteModel", **SIZES)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_tensor("up_gate_proj.weight", swap_halves), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "NomicBertModel", **SIZES)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", HEADS)
def test_logits_are_those_of_the_class(kind: str, family: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, family + kind, **SIZES, num_labels=3)
    assert_agrees(tiny, sequences(), HEADS[kind], labels=3)


def test_published_keys_of_nomic_bert_say_the_same(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "NomicBertModel", **SIZES, rope_parameters={"rope_theta": 700.0})
    published = {
        "model_type": "nomic_bert",
        "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-12,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "n_embd": 32,
        "n_head": 4,
        "n_inner": 48,
        "n_layer": 2,
        "n_positions": 8192,
        "qkv_proj_bias": False,
        "rotary_emb_base": 700,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        "type_vocab_size": TYPES,
        "vocab_size": VOCABULARY,
    }
    assert_agrees(replace(tiny, config=published), sequences())


def test_published_keys_and_names_of_gte_say_the_same(tmp_path: Path) -> None:
    """The scaling of type "ntk" is one of type linear, under another theta."""
    factor, dim = 8.0, 8
    scaling = {"rope_type": "linear", "factor": factor ** (2 / dim), "rope_theta": 300.0 * factor}
    tiny = save_tiny_family(
        tmp_path, "GteForSequenceClassification", **SIZES, num_labels=3, rope_parameters=scaling
    )
    tensors = safetensors.numpy.load_file(tiny.weights_file)
    renamed = {name.replace("gte.", "new.", 1): tensor for name, tensor in tensors.items()}
    published = {
        **SIZES,
        "model_type": "new",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
        "position_embedding_type": "rope",
        "rope_theta": 300.0,
        "rope_scaling": {"type": "ntk", "factor": factor},
    }
    tiny = replace(rename(tiny, renamed), config=published)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)
