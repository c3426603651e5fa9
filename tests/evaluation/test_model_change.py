"""The comparison of two models: neighbours and order against plain computations."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from support.drawn_labels import Labels
from support.texts import short_texts
from vecmill import SyncMill
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.evaluation.model_change import compare, read_texts
from vecmill.evaluation.neighbour_agreement import (
    ComparedVectors,
    correlate_ranks,
    find_overlaps,
    rank_values,
)
from vecmill.models import Task
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray

MillOf = Callable[[Task | None], SyncMill]


def draw_sides(seed: int, count: int) -> tuple[ComparedVectors, ComparedVectors]:
    """Vectors, and the same with noise and fewer dimensions."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, 24), np.float32)
    noisy = rows[:, :20] + random.standard_normal((count, 20), np.float32) / 2
    first, second = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, noisy))
    return ComparedVectors(first, Similarity.COSINE), ComparedVectors(second, Similarity.COSINE)


def test_overlaps_are_those_of_all_pairs() -> None:
    first, second = draw_sides(0, 150)
    found = find_overlaps(first, second, [1, 7])
    scores = [side.vectors @ side.vectors.T for side in (first, second)]
    for each in scores:
        np.fill_diagonal(each, -np.inf)
    for depth, shares in found.items():
        near = [np.argsort(-each, axis=1)[:, :depth] for each in scores]
        expected = [
            len({*ours} & {*theirs}) / depth for ours, theirs in zip(*(n.tolist() for n in near), strict=True)
        ]
        assert shares.tolist() == expected


def test_rank_correlations_are_scipys() -> None:
    first, second = draw_sides(1, 90)
    found = correlate_ranks(first, second)
    scores = [side.vectors @ side.vectors.T for side in (first, second)]
    expected = [
        stats.spearmanr(*(np.delete(each[number], number) for each in scores)).statistic
        for number in range(90)
    ]
    assert found == pytest.approx(expected, abs=1e-6)
    assert len(correlate_ranks(first, second, most=10)) == 10


def test_ranks_are_scipys_with_ties() -> None:
    values = np.random.default_rng(2).integers(0, 6, 50).astype(np.float32)
    assert rank_values(values).tolist() == stats.rankdata(values).tolist()


def test_equal_models_agree(mill_of: MillOf) -> None:
    mill = mill_of(Task.EMBED)
    found = compare(mill, mill, short_texts(3, 80), stored_texts=1_000)
    assert {number: share.mean for number, share in found.overlaps.items()} == {1: 1.0, 10: 1.0}
    assert found.rank_correlation.mean == pytest.approx(1)
    assert "Both are in one space" in found.markdown()
    assert (found.first.bytes_per_text, found.first.stored_bytes) == (32, 32_000)
    assert found.first.stored_hours == pytest.approx(1_000 / found.first.texts_per_s / 3600)


def test_both_are_evaluated_on_labelled_texts(mill_of: MillOf, labels: Labels) -> None:
    found = compare(mill_of(Task.EMBED), mill_of(None), short_texts(3, 80), neighbours_at=[5], labels=labels)
    assert found.quality is not None
    assert [row.retriever.model for row in found.quality.rows] == ["model/embed", "model/heads"]
    document = json.loads(json.dumps(found.document()))
    assert document["overlaps"]["5"]["mean"] == found.overlaps[5].mean
    assert len(document["quality"]["rows"]) == 2


def test_a_function_has_no_space() -> None:
    def embed(texts: Sequence[str], side: str) -> FloatArray:
        assert side == "document"
        return np.array([[len(text), 1] for text in texts], np.float32)

    found = compare(embed, embed, ["a", "bb", "ccc", "a"])
    assert found.texts == 3
    assert list(found.overlaps) == [1]
    assert "not known" in found.markdown()


def test_texts_of_files(tmp_path: Path) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("one\n\ntwo\none\n", "utf-8")
    assert read_texts(lines) == ["one", "two"]
    rows = tmp_path / "texts.jsonl"
    rows.write_text('{"text": "one", "id": 1}\n{"text": "two", "id": 2}\n', "utf-8")
    assert read_texts(rows) == ["one", "two"]
    with pytest.raises(InvalidCorpus, match="There is no file"):
        read_texts(tmp_path / "none.txt")


def test_what_cannot_be_compared(mill_of: MillOf) -> None:
    with pytest.raises(InvalidCorpus, match="2 different texts, and at least 3"):
        compare(mill_of(Task.EMBED), mill_of(None), ["a", "b", "a"])
    with pytest.raises(InvalidConfig, match="has no dense vectors"):
        compare(mill_of(Task.EMBED), mill_of(Task.SPARSE), ["a", "b", "c"])
