"""EuroBERT: a Llama that attends in both directions, with heads of its own."""

from pathlib import Path
from typing import Any

import pytest

from support.families import assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part
from vecmill.architectures.registry import has_foreign_code, read_encoder
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
    "num_key_value_heads": 2,
    "pad_token_id": PADDING,
    "rope_parameters": {"rope_theta": 250_000.0, "rope_type": "default"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "210m": {"num_key_value_heads": None},
    "610m": {},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "own_head_dim": {"head_dim": 16},
}
DEFECTS: dict[str, dict[str, Any]] = {
    "causal_mask_added": {"model_type": "llama", "is_causal": True},
    "biases_dropped": {"attention_bias": False},
    "inner_biases_dropped": {"mlp_bias": False},
    "positions_stretched": {
        "rope_parameters": {"rope_type": "linear", "factor": 1.1, "rope_theta": 250_000.0}
    },
    "other_theta": {"rope_parameters": {"rope_theta": 10_000.0}},
    "other_activation": {"hidden_act": "gelu"},
    "other_epsilon": {"rms_norm_eps": 0.01},
}
POOLINGS = ("bos", "late", "mean")


def sequences() -> list[TokenSequence]:
    """Some with padding tokens inside, which are tokens like others."""
    return random_sequences((1, 2, 3, 8, 20, 41), vocab_size=VOCABULARY, often=[PADDING])


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save_tiny_family(tmp_path, "EuroBertModel", **{**SIZES, **VARIANTS[name]}), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "inner_biases_dropped", "positions_stretched"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "EuroBertModel", **SIZES, attention_bias=True, mlp_bias=True)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(**DEFECTS[name]), sequences())


def test_a_dropped_padding_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = save_tiny_family(tmp_path, "EuroBertModel", **SIZES)
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(tiny, sequences())


@pytest.mark.parametrize("pooling", POOLINGS)
def test_texts_are_classified(pooling: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(
        tmp_path, "EuroBertForSequenceClassification", **SIZES, num_labels=3, classifier_pooling=pooling
    )
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)


@pytest.mark.parametrize("other", POOLINGS[1:])
def test_another_pooling_of_the_head_is_found(other: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(
        tmp_path, "EuroBertForSequenceClassification", **SIZES, num_labels=3, classifier_pooling="bos"
    )
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(classifier_pooling=other), sequences(), HeadKind.SEQUENCE, labels=3)


def test_tokens_are_classified(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "EuroBertForTokenClassification", **SIZES, num_labels=3)
    assert_agrees(tiny, sequences(), HeadKind.TOKENS, labels=3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_the_language_model_predicts_as_the_class(tied: bool, bias: bool, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "EuroBertForMaskedLM", **SIZES, tie_word_embeddings=tied, mlp_bias=bias)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)


def test_the_published_name_of_the_pooling_says_the_same(tmp_path: Path) -> None:
    tiny = save_tiny_family(
        tmp_path, "EuroBertForSequenceClassification", **SIZES, num_labels=3, classifier_pooling="mean"
    )
    published = tiny.with_config(clf_pooling="mean", classifier_pooling=None)
    assert_agrees(published, sequences(), HeadKind.SEQUENCE, labels=3)


@pytest.mark.parametrize(
    ("keys", "is_read"),
    [
        ({"clf_pooling": "late"}, True),
        ({"classifier_pooling": "mean"}, True),
        ({"clf_pooling": "mean", "classifier_pooling": "mean"}, True),
        ({"clf_pooling": "mean"}, False),
    ],
)
def test_transformers_ignores_the_published_name(keys: dict[str, str], is_read: bool) -> None:
    from transformers import EuroBertConfig

    encoder = read_encoder({"model_type": "eurobert", **keys}, "config.json")
    assert encoder.is_in_transformers is is_read
    pooling = keys.get("classifier_pooling", keys.get("clf_pooling"))
    assert (EuroBertConfig(**keys).classifier_pooling == pooling) is is_read


def test_two_names_with_different_values_are_refused() -> None:
    with pytest.raises(CorruptModel, match="clf_pooling and classifier_pooling have different values"):
        read_encoder({"model_type": "eurobert", "clf_pooling": "mean", "classifier_pooling": "bos"}, "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classifier_pooling", "max"),
        ("clf_pooling", "max"),
        ("is_causal", True),
        ("is_decoder", True),
        ("layer_types", ["sliding_attention"]),
        ("partial_rotary_factor", 0.5),
    ],
)
def test_settings_without_a_graph_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        read_encoder({"model_type": "eurobert", key: value}, "config.json")


def test_the_published_code_is_replaced_by_its_names() -> None:
    published = {
        "AutoConfig": "configuration_eurobert.EuroBertConfig",
        "AutoModel": "modeling_eurobert.EuroBertModel",
        "AutoModelForMaskedLM": "modeling_eurobert.EuroBertForMaskedLM",
    }
    assert not has_foreign_code({"model_type": "eurobert", "auto_map": published})
    assert has_foreign_code({"model_type": "eurobert", "auto_map": {"AutoModel": "modeling.OwnModel"}})
