"""The families that are built like BERT compute what transformers' classes compute, heads included."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part, one_of_each
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.errors import CorruptModel
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

LABELS = 3
VOCAB_SIZE = 99
SIZES = MappingProxyType(
    {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
    }
)
CLASSES = {
    None: "Model",
    HeadKind.SEQUENCE: "ForSequenceClassification",
    HeadKind.TOKENS: "ForTokenClassification",
    HeadKind.VOCABULARY: "ForMaskedLM",
}

Defect = Callable[[TinyFamily], TinyFamily]


def edit(suffix: str, change: Callable[[FloatArray], FloatArray]) -> Defect:
    return lambda tiny: tiny.with_tensor(suffix, change)


def setting(**changes: Any) -> Defect:
    return lambda tiny: tiny.with_config(**changes)


def shift(rows: FloatArray) -> FloatArray:
    return np.roll(rows, 1, axis=0)


COMMON: Mapping[str, Defect] = {
    "positions shifted": edit("position_embeddings.weight", shift),
    "norm without epsilon": setting(layer_norm_eps=1e-12),
    "activation": setting(hidden_act="gelu_new"),
}
TYPES: Mapping[str, Defect] = {"token types dropped": edit("token_type_embeddings.weight", np.zeros_like)}


@dataclass(frozen=True, slots=True)
class Case:
    """A family as its class in transformers, what its config says, and how it can be wrong.

    `often` are ids that texts are full of: those of padding and of other special tokens.
    """

    stem: str
    settings: Mapping[str, Any]
    lengths: Sequence[int]
    token_types: int = 1
    often: Sequence[int] = (0, 1, 2)
    defects: Mapping[str, Defect] = field(default_factory=dict)

    def save(self, folder: Path, head: HeadKind | None = None, **settings: Any) -> TinyFamily:
        labels = {} if head is None else {"num_labels": LABELS}
        settings = {"layer_norm_eps": 1e-3, **self.settings, **labels, **settings}
        return save_tiny_family(folder, self.stem + CLASSES[head], **settings)

    def sequences(self) -> list[TokenSequence]:
        return random_sequences(
            self.lengths, vocab_size=VOCAB_SIZE, token_types=self.token_types, often=self.often
        )


# Distances beyond 128 all are alike.
FAR = (1, 2, 3, 33, 127, 150, 300)

CASES = {
    "bert": Case("Bert", SIZES, (1, 2, 3, 17, 39, 40), 2, defects={**COMMON, **TYPES}),
    # Positions begin after the padding's id, so the longest input is 2 less.
    "roberta": Case(
        "Roberta",
        {**SIZES, "type_vocab_size": 1},
        (1, 2, 3, 17, 37, 38),
        defects={**COMMON, "positions counted from another id": setting(pad_token_id=0)},
    ),
    "roberta with types": Case(
        "Roberta", {**SIZES, "type_vocab_size": 2}, (1, 2, 17, 38), 2, defects={**COMMON, **TYPES}
    ),
    "roberta with other padding": Case("Roberta", {**SIZES, "pad_token_id": 5}, (1, 2, 17, 34), often=(1, 5)),
    "xlm-roberta": Case("XLMRoberta", {**SIZES, "type_vocab_size": 1}, (1, 2, 17, 38), defects=COMMON),
    "camembert": Case("Camembert", {**SIZES, "type_vocab_size": 1}, (1, 2, 17, 38), defects=COMMON),
    "distilbert": Case(
        "DistilBert",
        {
            "vocab_size": VOCAB_SIZE,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "max_position_embeddings": 40,
        },
        (1, 2, 3, 17, 39, 40),
        2,  # which it has no embeddings for, whatever the tokenizer says
        defects={
            "positions shifted": COMMON["positions shifted"],
            "activation": setting(activation="gelu_new"),
        },
    ),
    "mpnet": Case(
        "MPNet",
        {**SIZES, "max_position_embeddings": 302},
        FAR,
        defects={
            **COMMON,
            "relative bias dropped": edit("relative_attention_bias.weight", np.zeros_like),
            "relative bias shifted": edit("relative_attention_bias.weight", shift),
        },
    ),
    # Both numbers have no effect in the reference; ours must not heed them either.
    "mpnet with other padding and buckets": Case(
        "MPNet",
        {**SIZES, "max_position_embeddings": 302, "relative_attention_num_buckets": 40, "pad_token_id": 0},
        FAR,
    ),
    "electra": Case(
        "Electra", {**SIZES, "embedding_size": 16}, (1, 2, 17, 40), 2, defects={**COMMON, **TYPES}
    ),
    "electra without projection": Case("Electra", {**SIZES, "embedding_size": 32}, (1, 2, 17, 40), 2),
    "albert": Case(
        "Albert",
        {**SIZES, "embedding_size": 16, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2},
        (1, 2, 17, 40),
        2,
        defects={
            **COMMON,
            **TYPES,
            "activation": setting(hidden_act="gelu"),
            "one group": setting(num_hidden_groups=1),
            "one layer a group": setting(inner_group_num=1),
        },
    ),
    "albert as published": Case("Albert", {**SIZES, "embedding_size": 32}, (1, 2, 17, 40), 2),
}
DEFECTS = [(name, defect) for name, case in CASES.items() for defect in case.defects]
WITH_HEADS = ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "electra", "albert"]
OWN_HEADS = [name for name in WITH_HEADS if name not in ("xlm-roberta", "camembert")]  # RoBERTa's classes
HEADS = [HeadKind.SEQUENCE, HeadKind.TOKENS, HeadKind.VOCABULARY]


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(CASES[name].save(tmp_path), CASES[name].sequences())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", in_part(WITH_HEADS, *OWN_HEADS))
def test_logits_are_those_of_the_class(name: str, head: HeadKind, tmp_path: Path) -> None:
    assert_agrees(CASES[name].save(tmp_path, head), CASES[name].sequences(), head, labels=LABELS)


@pytest.mark.parametrize(("name", "defect"), in_part(DEFECTS, *one_of_each(DEFECTS, lambda case: case[1])))
def test_a_planted_defect_is_noticed(name: str, defect: str, tmp_path: Path) -> None:
    broken = CASES[name].defects[defect](CASES[name].save(tmp_path))
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(broken, CASES[name].sequences())


@pytest.mark.parametrize("name", WITH_HEADS)
def test_a_dropped_mask_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(CASES[name].save(tmp_path), CASES[name].sequences())


@pytest.mark.parametrize("head", [HeadKind.SEQUENCE, HeadKind.VOCABULARY])
@pytest.mark.parametrize("name", in_part(WITH_HEADS, *OWN_HEADS))
def test_a_dropped_activation_of_a_head_is_noticed(
    name: str, head: HeadKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = CASES[name].save(tmp_path, head)
    family = find_graph_class(read_encoder(tiny.config, "config.json"))
    attribute = f"{head}_head"
    monkeypatch.setattr(family, attribute, replace(getattr(family, attribute), activation="linear"))
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, CASES[name].sequences(), head, labels=LABELS)


@pytest.mark.parametrize("name", in_part(WITH_HEADS, *OWN_HEADS))
def test_an_output_of_its_own_is_used(name: str, tmp_path: Path) -> None:
    tiny = CASES[name].save(tmp_path, HeadKind.VOCABULARY, tie_word_embeddings=False)
    assert_agrees(tiny, CASES[name].sequences(), HeadKind.VOCABULARY)
    # Where both are stored and differ, transformers leaves them as they are, whatever the config says.
    assert_agrees(tiny.with_config(tie_word_embeddings=True), CASES[name].sequences(), HeadKind.VOCABULARY)


def test_an_output_that_is_neither_stored_nor_tied_is_missed(tmp_path: Path) -> None:
    tied = CASES["bert"].save(tmp_path, HeadKind.VOCABULARY)
    with pytest.raises(CorruptModel, match=r"has no tensor 'cls\.predictions\.decoder\.weight'"):
        assert_agrees(
            tied.with_config(tie_word_embeddings=False), CASES["bert"].sequences(), HeadKind.VOCABULARY
        )


@pytest.mark.parametrize("name", WITH_HEADS)
def test_an_encoder_is_found_in_a_model_with_a_head(name: str, tmp_path: Path) -> None:
    whole = CASES[name].save(tmp_path, HeadKind.TOKENS)
    encoder = replace(whole, reference=whole.reference.part("base_model", lambda model: model.base_model))
    assert_agrees(encoder, CASES[name].sequences())


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_norms_by_their_old_names_are_found(name: str, tmp_path: Path) -> None:
    def rename(tensor: str) -> str:
        return tensor.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )

    tiny = CASES[name].save(tmp_path, HeadKind.VOCABULARY).with_names(rename)
    assert_agrees(tiny, CASES[name].sequences(), HeadKind.VOCABULARY)


def test_types_of_a_family_with_one_type_have_no_effect(tmp_path: Path) -> None:
    tiny = CASES["roberta"].save(tmp_path)
    plain = CASES["roberta"].sequences()
    typed = [TokenSequence.of(text.token_ids.tolist(), [1] * len(text)) for text in plain]
    assert np.array_equal(tiny.compute(plain), tiny.compute(typed))
