"""DeBERTa with every combination of its options computes what transformers' class computes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.scales import in_part, one_of_each
from vecmill.errors import UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

LABELS = 3
VOCAB_SIZE = 99
# Version 3 as published, but for its size: 8 buckets, all alike from 40 on, so most texts go beyond.
VERSION_3: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
        "layer_norm_eps": 1e-3,
        "relative_attention": True,
        "max_relative_positions": -1,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
    }
)
# And the large model of version 2, with everything that is optional besides.
LARGE_2: Mapping[str, Any] = MappingProxyType(
    {
        **VERSION_3,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "position_biased_input": True,
        "type_vocab_size": 2,
        "embedding_size": 16,
    }
)
APART = {"share_att_key": False, "position_buckets": -1, "max_relative_positions": 12}

Defect = Callable[[TinyFamily], TinyFamily]


@dataclass(frozen=True, slots=True)
class Case:
    """What the config says, and how our side can be wrong."""

    settings: Mapping[str, Any]
    lengths: Sequence[int] = (1, 2, 3, 9, 33, 60, 90)
    token_types: int = 1
    defects: Mapping[str, Defect] = field(default_factory=dict)

    def save(self, folder: Path, suffix: str = "Model", **settings: Any) -> TinyFamily:
        labels = {} if suffix == "Model" else {"num_labels": LABELS}
        return save_tiny_family(folder, f"DebertaV2{suffix}", **{**self.settings, **labels, **settings})

    def sequences(self) -> list[TokenSequence]:
        return random_sequences(
            self.lengths, vocab_size=VOCAB_SIZE, token_types=self.token_types, often=(0, 1)
        )


def edit(suffix: str, change: Callable[[FloatArray], FloatArray]) -> Defect:
    return lambda tiny: tiny.with_tensor(suffix, change)


def setting(**changes: Any) -> Defect:
    return lambda tiny: tiny.with_config(**changes)


def shift(rows: FloatArray) -> FloatArray:
    return np.roll(rows, 1, axis=0)


def reverse(rows: FloatArray) -> FloatArray:
    return rows[::-1]


CASES = {
    "version 3": Case(
        VERSION_3,
        defects={
            "distances dropped": setting(relative_attention=False),
            "distances shifted": edit("rel_embeddings.weight", shift),
            "distances reversed": edit("rel_embeddings.weight", reverse),
            "distances of keys alone": setting(pos_att_type="c2p"),
            "distances of queries alone": setting(pos_att_type="p2c"),
            "distances not normalised": setting(norm_rel_ebd="none"),
            "other buckets": setting(max_relative_positions=80),
            "one distance a bucket": setting(position_buckets=-1, max_relative_positions=8),
            "activation": setting(hidden_act="gelu_new"),
            "norm without epsilon": setting(layer_norm_eps=1e-12),
        },
    ),
    "version 2 large": Case(
        LARGE_2,
        (1, 2, 3, 9, 38, 40),
        token_types=2,
        defects={
            "convolution dropped": setting(conv_kernel_size=0),
            "activation of the convolution": setting(conv_act="tanh"),
            "convolution reversed": edit("conv.conv.weight", lambda rows: rows[:, :, ::-1]),
            "token types dropped": setting(type_vocab_size=0),
            "positions dropped": setting(position_biased_input=False),
            "positions shifted": edit("position_embeddings.weight", shift),
        },
    ),
    "projections of their own": Case({**VERSION_3, "share_att_key": False}),
    "no buckets": Case({**VERSION_3, **APART}),
    "distances of keys": Case({**VERSION_3, **APART, "pos_att_type": ["c2p"]}),
    "distances of queries": Case({**VERSION_3, **APART, "pos_att_type": ["p2c"]}),
    "distances of neither": Case({**VERSION_3, **APART, "pos_att_type": None}),
    "no distances": Case({**VERSION_3, "relative_attention": False}),
    "wide convolution in groups": Case({**VERSION_3, "conv_kernel_size": 5, "conv_groups": 2}),
}
DEFECTS = [(name, defect) for name, case in CASES.items() for defect in case.defects]
HEADS = {
    HeadKind.SEQUENCE: "ForSequenceClassification",
    HeadKind.TOKENS: "ForTokenClassification",
    HeadKind.VOCABULARY: "ForMaskedLM",
}


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(CASES[name].save(tmp_path), CASES[name].sequences())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["version 3", "version 2 large"])
def test_logits_are_those_of_the_class(name: str, head: HeadKind, tmp_path: Path) -> None:
    tiny = CASES[name].save(tmp_path, HEADS[head], pooler_hidden_act="tanh")
    assert_agrees(tiny, CASES[name].sequences(), head, labels=LABELS)


@pytest.mark.parametrize(("name", "defect"), in_part(DEFECTS, *one_of_each(DEFECTS, lambda case: case[1])))
def test_a_planted_defect_is_noticed(name: str, defect: str, tmp_path: Path) -> None:
    broken = CASES[name].defects[defect](CASES[name].save(tmp_path))
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(broken, CASES[name].sequences())


@pytest.mark.parametrize("name", ["version 3", "version 2 large"])
def test_a_dropped_mask_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(CASES[name].save(tmp_path), CASES[name].sequences())


def test_another_activation_of_the_pooler_is_noticed(tmp_path: Path) -> None:
    tiny = CASES["version 3"].save(tmp_path, "ForSequenceClassification")
    broken = tiny.with_config(pooler_hidden_act="tanh")
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(broken, CASES["version 3"].sequences(), HeadKind.SEQUENCE, labels=LABELS)


def test_a_language_model_of_the_newer_kind_is_refused(tmp_path: Path) -> None:
    tiny = CASES["version 3"].save(tmp_path, "ForMaskedLM", legacy=False)
    with pytest.raises(UnsupportedModel, match="legacy false"):
        assert_agrees(tiny, CASES["version 3"].sequences(), HeadKind.VOCABULARY)


def test_nan_stays_in_its_text(tmp_path: Path) -> None:
    def spoil(rows: FloatArray) -> FloatArray:
        rows[7] = np.nan
        return rows

    tiny = CASES["version 2 large"].save(tmp_path).with_tensor("word_embeddings.weight", spoil)
    found = tiny.compute([TokenSequence.of([5, 7]), TokenSequence.of([5, 6, 8]), TokenSequence.of([7])])
    assert np.isnan(found).any(axis=1).tolist() == [True, True, False, False, False, True]
