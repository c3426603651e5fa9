"""JinaBERT, by both of its published codes: linear biases by distance, and gated units."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from vecmill.architectures import jina_bert_graph
from vecmill.architectures.jina_bert import JinaBertConfig
from vecmill.architectures.registry import name_architecture, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.distances import LinearBiases
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
TYPES = 2
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 8192,
        "type_vocab_size": TYPES,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
    }
)
CODES = ("ReferenceJinaBertModel", "ReferenceJinaBertCodeModel")
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "published": {},
        "reglu": {"feed_forward_type": "reglu"},
        # Wider models of random weights turn roundings into differences of 1e-4.
        "heads_between_powers_of_two": {"hidden_size": 24, "num_attention_heads": 6},
        "one_head": {"num_attention_heads": 1},
    }
)
HEADS: Mapping[str, HeadKind] = MappingProxyType(
    {
        "ReferenceJinaBertForSequenceClassification": HeadKind.SEQUENCE,
        "ReferenceJinaBertForTokenClassification": HeadKind.TOKENS,
        "ReferenceJinaBertForMaskedLM": HeadKind.VOCABULARY,
    }
)


def save_jina(folder: Path, class_name: str, **settings: Any) -> TinyFamily:
    return save_tiny_family(folder, class_name, **{**SIZES, **settings})


def sequences() -> list[TokenSequence]:
    """Of both token types, some with padding tokens inside."""
    return random_sequences((1, 2, 3, 8, 20, 41), vocab_size=VOCABULARY, token_types=TYPES, often=[0, 1])


def swap_halves(matrix: FloatArray) -> FloatArray:
    """The gates where the values were."""
    return np.roll(matrix, len(matrix) // 2, axis=0)


DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = MappingProxyType(
    {
        "other_gates": lambda tiny: tiny.with_config(feed_forward_type="reglu"),
        "other_epsilon": lambda tiny: tiny.with_config(layer_norm_eps=0.01),
        "other_heads": lambda tiny: tiny.with_config(num_attention_heads=8),
        "token_types_swapped": lambda tiny: tiny.with_tensor("token_type_embeddings.weight", np.flipud),
    }
)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("code", CODES)
def test_hidden_states_are_those_of_the_formulas(code: str, name: str, tmp_path: Path) -> None:
    assert_agrees(save_jina(tmp_path, code, **SETTINGS[name]), sequences())


@pytest.mark.parametrize("kind", HEADS)
def test_logits_are_those_of_the_formulas(kind: str, tmp_path: Path) -> None:
    assert_agrees(save_jina(tmp_path, kind, num_labels=3), sequences(), HEADS[kind], labels=3)


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("code", CODES)
def test_planted_defects_are_found(code: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save_jina(tmp_path, code)), sequences())


@pytest.mark.parametrize(
    ("code", "suffix"), [(CODES[0], "gated_layers.weight"), (CODES[1], "up_gated_layer.weight")]
)
def test_gates_in_the_place_of_values_are_found(code: str, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(save_jina(tmp_path, code).with_tensor(suffix, swap_halves), sequences())


@pytest.mark.parametrize("norm", ["layer_norm_q", "layer_norm_k", "layer_norm_1", "layer_norm_2"])
def test_each_norm_of_the_second_code_counts(norm: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(save_jina(tmp_path, CODES[1]).with_tensor(f"{norm}.weight", np.flipud), sequences())


@pytest.mark.parametrize("code", CODES)
def test_a_dropped_padding_mask_is_found(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_jina(tmp_path, code)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("slopes", [(0.0,) * 4, (0.25, 0.0625, 0.015625, 0.0039)])
def test_other_slopes_are_found(
    slopes: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherBiases(LinearBiases):
        @classmethod
        def of(cls, heads: int) -> LinearBiases:
            return LinearBiases(slopes)

    tiny = save_jina(tmp_path, CODES[0])
    monkeypatch.setattr(jina_bert_graph, "LinearBiases", OtherBiases)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("heads", range(1, 33))
def test_slopes_are_those_of_the_paper(heads: int) -> None:
    from support.own_code_models import alibi_slopes

    found = LinearBiases.of(heads).slopes
    assert found == pytest.approx(alibi_slopes(heads))
    assert len(found) == heads


def test_names_of_a_model_with_a_head_and_of_an_encoder_are_read(tmp_path: Path) -> None:
    tiny = save_jina(tmp_path, CODES[0])
    assert_agrees(tiny.with_names(lambda name: f"bert.{name}"), sequences())


def test_position_embeddings_tell_jina_bert_from_bert() -> None:
    assert name_architecture({"model_type": "bert", "position_embedding_type": "alibi"}) == "jina_bert"
    assert name_architecture({"model_type": "bert"}) == "bert"
    assert name_architecture({"model_type": "gte", "position_embedding_type": "alibi"}) == "gte"


def read(**changes: Any) -> Any:
    return read_encoder({**SIZES, "model_type": "bert", **changes}, "config.json")


def test_the_longest_input_is_what_the_file_says() -> None:
    encoder = read()
    assert isinstance(encoder, JinaBertConfig)
    assert (encoder.max_input_tokens, encoder.gate_act, encoder.token_types) == (8192, "gelu", TYPES)


@pytest.mark.parametrize(
    ("error", "changes", "words"),
    [
        (UnsupportedModel, {"feed_forward_type": "original"}, "feed_forward_type 'original'"),
        (UnsupportedModel, {"is_decoder": True}, "is_decoder True"),
        (UnsupportedModel, {"add_cross_attention": True}, "add_cross_attention True"),
        (UnsupportedModel, {"hidden_act": "mish"}, "hidden_act 'mish'"),
        (CorruptModel, {"num_attention_heads": 7}, "hidden_size 32"),
    ],
)
def test_what_is_not_built_is_refused_by_name(
    error: type[Exception], changes: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(error, match=words):
        read(**changes)
