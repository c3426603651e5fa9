"""Encoders that differ from BERT or RoBERTa in where they normalise, or in less."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
PADDING = 1
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": PADDING,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ernie": ("Ernie", {**SIZES, "use_task_id": True}),
    "ernie_no_task": ("Ernie", SIZES),
    "data2vec": ("Data2VecText", SIZES),
    "data2vec_one_type": ("Data2VecText", {**SIZES, "type_vocab_size": 1}),
    "prelayernorm": ("RobertaPreLayerNorm", SIZES),
    "xlm_roberta_xl": ("XLMRobertaXL", {**SIZES, "type_vocab_size": 1}),
    "megatron": ("MegatronBert", SIZES),
    "rembert": ("RemBert", {**SIZES, "input_embedding_size": 16, "output_embedding_size": 24}),
}
HEADS = ("ernie", "data2vec", "prelayernorm", "xlm_roberta_xl", "megatron", "rembert")


def rolled(tiny: TinyFamily, suffix: str) -> TinyFamily:
    return tiny.with_tensor(suffix, lambda tensor: np.roll(tensor, 1, axis=0))


DEFECTS: dict[str, tuple[str, Any]] = {
    "task_dropped": ("ernie", lambda tiny: tiny.with_config(use_task_id=False)),
    "another_task": ("ernie", lambda tiny: rolled(tiny, "task_type_embeddings.weight")),
    "other_activation": ("data2vec", lambda tiny: tiny.with_config(hidden_act="relu")),
    "positions_from_another_padding": ("data2vec", lambda tiny: tiny.with_config(pad_token_id=2)),
    "norm_before_attention": ("prelayernorm", lambda tiny: rolled(tiny, "attention.LayerNorm.weight")),
    "norm_before_linear_layers": ("prelayernorm", lambda tiny: rolled(tiny, "intermediate.LayerNorm.bias")),
    "positions_not_shifted": ("prelayernorm", lambda tiny: tiny.with_config(pad_token_id=0)),
    "last_norm": ("xlm_roberta_xl", lambda tiny: rolled(tiny, "encoder.LayerNorm.weight")),
    "positions_shifted_more": ("xlm_roberta_xl", lambda tiny: tiny.with_config(pad_token_id=3)),
    "last_norm_of_megatron": ("megatron", lambda tiny: rolled(tiny, "encoder.ln.bias")),
    "types_swapped": ("megatron", lambda tiny: rolled(tiny, "token_type_embeddings.weight")),
    "projection_of_embeddings": ("rembert", lambda tiny: rolled(tiny, "embedding_hidden_mapping_in.bias")),
    "norm_of_embeddings": ("rembert", lambda tiny: rolled(tiny, "embeddings.LayerNorm.weight")),
    "post_norm": ("megatron", lambda tiny: tiny.with_tensor("attention.ln.weight", np.ones_like)),
}


def sequences(types: int = 2) -> list[TokenSequence]:
    """Some with padding tokens inside."""
    return random_sequences((1, 2, 5, 9, 20, 41), vocab_size=VOCABULARY, token_types=types, often=[PADDING])


def save(folder: Path, name: str, class_name: str = "Model", **settings: Any) -> TinyFamily:
    stem, sizes = FAMILIES[name]
    return save_tiny_family(folder, f"{stem}{class_name}", **{**sizes, **settings})


def types_of(name: str) -> int:
    return int(FAMILIES[name][1].get("type_vocab_size", 2))


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, name), sequences(types_of(name)))


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(defect: str, tmp_path: Path) -> None:
    name, plant = DEFECTS[defect]
    tiny = save(tmp_path, name)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(plant(tiny), sequences(types_of(name)))


@pytest.mark.parametrize("name", HEADS)
def test_texts_are_classified(name: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, name, "ForSequenceClassification", num_labels=3)
    assert_agrees(tiny, sequences(types_of(name)), HeadKind.SEQUENCE, labels=3)


@pytest.mark.parametrize("name", HEADS)
def test_tokens_are_classified(name: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, name, "ForTokenClassification", num_labels=5)
    assert_agrees(tiny, sequences(types_of(name)), HeadKind.TOKENS, labels=5)


@pytest.mark.parametrize("name", HEADS)
def test_masks_are_filled(name: str, tmp_path: Path) -> None:
    tiny = save(tmp_path, name, "ForMaskedLM")
    assert_agrees(tiny, sequences(types_of(name)), HeadKind.VOCABULARY)


def test_the_words_of_rembert_are_not_those_of_its_head(tmp_path: Path) -> None:
    sizes = {"input_embedding_size": 24, "output_embedding_size": 24}
    tiny = save(tmp_path, "rembert", "ForMaskedLM", tie_word_embeddings=True, **sizes)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)


def test_decoders_of_rembert_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"is_decoder .* is not supported"):
        read_encoder({"model_type": "rembert", "is_decoder": True}, "config.json")


@pytest.mark.parametrize("size", [0, -1, 2**40, "wide"])
@pytest.mark.parametrize("key", ["input_embedding_size", "output_embedding_size", "hidden_size"])
def test_absurd_sizes_of_rembert_are_refused(key: str, size: object) -> None:
    with pytest.raises(CorruptModel, match=f"{key} must be a whole number"):
        read_encoder({"model_type": "rembert", key: size}, "config.json")


@pytest.mark.parametrize(
    "model_type", ["ernie", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert"]
)
def test_decoders_and_other_positions_are_refused(model_type: str) -> None:
    for key, value in (("is_decoder", True), ("position_embedding_type", "relative_key")):
        with pytest.raises(UnsupportedModel, match=f"{key} .* is not supported"):
            read_encoder({"model_type": model_type, key: value}, "config.json")
