"""Jina's "flash" implementation of XLM-RoBERTa, against transformers' XLM-RoBERTa with renamed tensors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.flash_tensors import name_as_flash
from vecmill.architectures.registry import has_foreign_code, name_architecture, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
PADDING = 1
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 44,
    "type_vocab_size": 1,
    "pad_token_id": PADDING,
    "layer_norm_eps": 1e-5,
}
# Those of jina-reranker-v2-base-multilingual, whose file has no model_type.
PUBLISHED: dict[str, Any] = {
    **SIZES,
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "emb_pooler": None,
    "num_labels": 1,
    "use_flash_attn": True,
    "auto_map": {
        "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig",
        "AutoModel": "modeling_xlm_roberta.XLMRobertaModel",
        "AutoModelForSequenceClassification": "modeling_xlm_roberta.XLMRobertaForSequenceClassification",
    },
}
HEADS = {
    "ForSequenceClassification": HeadKind.SEQUENCE,
    "ForTokenClassification": HeadKind.TOKENS,
    "ForMaskedLM": HeadKind.VOCABULARY,
}


def reverse_thirds(matrix: FloatArray) -> FloatArray:
    """Values, keys and queries, in this order."""
    return np.concatenate(np.split(matrix, 3)[::-1])


DEFECTS: dict[str, Any] = {
    "other_activation": lambda tiny: tiny.with_config(hidden_act="gelu_new"),
    "other_epsilon": lambda tiny: tiny.with_config(layer_norm_eps=0.01),
    "positions_from_another_padding": lambda tiny: tiny.with_config(pad_token_id=PADDING + 1),
    "heads_merged": lambda tiny: tiny.with_config(num_attention_heads=2),
    "values_for_queries": lambda tiny: tiny.with_tensor("mixer.Wqkv.weight", reverse_thirds),
    "other_bias": lambda tiny: tiny.with_tensor("mlp.fc2.bias", np.negative),
    "other_norm": lambda tiny: tiny.with_tensor("norm1.weight", np.flip),
}


def sequences() -> list[TokenSequence]:
    """Some with padding tokens inside."""
    return random_sequences((1, 2, 3, 8, 20, 41), vocab_size=VOCABULARY, often=[0, PADDING])


def save_flash(folder: Path, class_name: str, **settings: Any) -> TinyFamily:
    """A model of transformers' class, which our side reads as it was published."""
    tiny = save_tiny_family(folder, class_name, **SIZES, **settings)
    path = folder / "published.safetensors"
    safetensors.numpy.save_file(name_as_flash(safetensors.numpy.load_file(tiny.weights_file)), path)
    return replace(tiny, config=PUBLISHED, weights_file=path)


def test_hidden_states_are_those_of_the_class(tmp_path: Path) -> None:
    assert_agrees(save_flash(tmp_path, "XLMRobertaModel"), sequences())


@pytest.mark.parametrize("kind", HEADS)
def test_logits_are_those_of_the_class(kind: str, tmp_path: Path) -> None:
    labels = 1 if kind == "ForSequenceClassification" else 3
    tiny = save_flash(tmp_path, f"XLMRoberta{kind}", num_labels=labels)
    assert_agrees(tiny, sequences(), HEADS[kind], labels=labels)


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_flash(tmp_path, "XLMRobertaModel")
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](tiny), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_flash(tmp_path, "XLMRobertaModel")
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("model_type", [None, "", "xlm-roberta"])
def test_the_class_of_the_settings_tells_the_architecture(model_type: str | None) -> None:
    config = {**PUBLISHED, "model_type": model_type}
    assert name_architecture(config) == "xlm-roberta-flash"
    assert not has_foreign_code(config)


@pytest.mark.parametrize(
    ("model_type", "auto_map"),
    [
        ("xlm-roberta", {"AutoConfig": "configuration.OwnConfig"}),
        ("xlm-roberta", {"AutoModel": "modeling.XLMRobertaFlashConfig"}),
        ("own", {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"}),
        ("xlm-roberta", "XLMRobertaFlashConfig"),
    ],
)
def test_other_code_is_not_replaced(model_type: str, auto_map: object) -> None:
    config = {**PUBLISHED, "model_type": model_type, "auto_map": auto_map}
    assert name_architecture(config) == model_type
    assert has_foreign_code(config)


@pytest.mark.parametrize("key", ["layer_norm_eps", "max_position_embeddings", "position_embedding_type"])
def test_a_published_file_must_have_the_keys_that_versions_of_the_code_set_differently(key: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"without {key} the model is not supported"):
        read_encoder({**PUBLISHED, key: None}, "config.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("emb_pooler", "cls"),
        ("fused_mlp", True),
        ("hidden_act", "relu"),
        ("is_decoder", True),
        ("last_layer_subset", True),
        ("pad_vocab_size_multiple", 8),
        ("position_embedding_type", "alibi"),
        ("truncate_dim", 64),
    ],
)
def test_settings_without_a_graph_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        read_encoder({**PUBLISHED, key: value}, "config.json")


def test_a_model_without_positions_is_refused() -> None:
    with pytest.raises(CorruptModel, match="leaves no position after pad_token_id 1"):
        read_encoder({**PUBLISHED, "max_position_embeddings": 2}, "config.json")
