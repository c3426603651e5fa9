"""The comparison tells rounding from a wrong row."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.models import Task
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.sample_texts import ODD_TEXTS, sample_texts
from vecmill.verification.check_inputs import CheckInput, CheckInputs
from vecmill.verification.comparison import (
    EmbeddingComparison,
    ScoreComparison,
    compare_embeddings,
    compare_outputs,
    share_kept,
)

ROWS = np.random.default_rng(3).standard_normal((60, 32)).astype(np.float32)


def test_equal_rows_agree_in_everything() -> None:
    found = compare_embeddings(ROWS, ROWS)
    assert (found.texts, found.largest_difference, found.neighbours_kept) == (60, 0.0, 1.0)
    assert found.cosine_min == pytest.approx(1.0)


def test_one_wrong_row_is_named() -> None:
    wrong = ROWS.copy()
    wrong[17] = ROWS[18]
    found = compare_embeddings(wrong, ROWS)
    assert found.worst_text == 17
    assert found.cosine_min < 0.9 < found.cosine_mean
    assert found.neighbours_kept is not None
    assert found.neighbours_kept < 1


def test_neighbours_are_counted_by_hand() -> None:
    # On a circle the ten nearest are five on either purpose; turning one text to the far purpose costs it all
    # ten, and its old neighbours one each.
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turned = circle.copy()
    turned[0] = -circle[0] + np.float32(1e-3)
    found = compare_embeddings(turned, circle)
    assert found.neighbours_kept is not None
    lost = round((1 - found.neighbours_kept) * 600)
    assert 20 <= lost <= 32  # its own 10, its 10 old neighbours', and those whom it now displaces


def test_rows_that_are_not_finite_are_infinitely_far() -> None:
    broken = ROWS.copy()
    broken[0, 0] = np.nan
    assert compare_embeddings(broken, ROWS).largest_difference == np.inf


def test_a_handful_of_texts_says_nothing_of_neighbours() -> None:
    assert compare_embeddings(ROWS[:20], ROWS[:20]).neighbours_kept is None


def test_rows_of_zeros_agree_with_rows_of_zeros() -> None:
    zeros = np.zeros((3, 4), np.float32)
    assert compare_embeddings(zeros, zeros).cosine_min == 1.0


def test_sample_texts_are_different_and_the_same_each_time() -> None:
    texts = sample_texts(200)
    assert texts == sample_texts(200)
    assert len(set(texts)) == 200
    assert texts[: len(ODD_TEXTS)] == list(ODD_TEXTS)
    assert sample_texts(200, seed=1) != texts


def test_the_best_are_counted_by_hand() -> None:
    theirs = np.tile(np.arange(30, dtype=np.float32), (2, 1))
    ours = theirs.copy()
    ours[1, 0] = 100  # the worst of the second query comes first, and drives out its tenth
    assert share_kept(theirs, theirs) == 1
    assert share_kept(ours, theirs) == pytest.approx(19 / 20)


def test_a_choice_among_equals_is_no_loss() -> None:
    theirs = np.zeros((1, 30), np.float32)
    assert share_kept(np.arange(30, dtype=np.float32)[None], theirs) == 1


def scores(values: NDArray[Any]) -> tuple[FloatArray, ...]:
    return tuple(values.astype(np.float32).reshape(len(values), 1, -1))


def test_a_reranker_is_judged_by_each_query_s_best_documents() -> None:
    pairs = tuple(CheckInput(query, str(index)) for query in ("one", "other") for index in range(25))
    right = np.arange(50, dtype=np.float32) / 50
    wrong = right.copy()
    wrong[:25] = wrong[:25][::-1]
    found = compare_outputs(Task.RERANK, pairs, scores(wrong), scores(right))
    assert isinstance(found, ScoreComparison)
    # Of 25, the ten best of one order are the ten worst of the other.
    assert (found.inputs, found.worst_input, found.decisions_kept) == (50, 0, 0.5)
    assert found.largest_difference == pytest.approx(24 / 50)
    few = compare_outputs(Task.RERANK, pairs[:5], scores(wrong[:5]), scores(right[:5]))
    assert isinstance(few, ScoreComparison)
    assert few.decisions_kept is None


def test_a_classifier_is_judged_by_the_best_label() -> None:
    right = np.eye(4, dtype=np.float32)
    wrong = right.copy()
    wrong[2] = np.nan
    wrong[3] = right[0]
    found = compare_outputs(Task.CLASSIFY, (CheckInput("a"),) * 4, scores(wrong), scores(right))
    assert isinstance(found, ScoreComparison)
    assert (found.largest_difference, found.worst_input, found.decisions_kept) == (np.inf, 2, 0.5)


@pytest.mark.parametrize("task", [Task.CLASSIFY_TOKENS, Task.MULTI_VECTOR])
def test_another_number_of_tokens_is_infinitely_far(task: Task) -> None:
    right = tuple(ROWS[start : start + 3] for start in range(0, 60, 3))
    wrong = (*right[:7], right[7][:2], *right[8:])
    inputs: CheckInputs = (CheckInput("a"),) * len(right)
    assert compare_outputs(task, inputs, right, right).largest_difference == 0
    found = compare_outputs(task, inputs, wrong, right)
    assert found.largest_difference == np.inf
    assert (found.worst_text if isinstance(found, EmbeddingComparison) else found.worst_input) == 7


def test_sparse_rows_are_compared_with_their_zeros() -> None:
    one = SparseEmbedding(np.array([2, 900_000]), np.array([1, 2], np.float32))
    other = SparseEmbedding(np.array([2, 5]), np.array([1, 0.5], np.float32))
    none = SparseEmbedding(np.array([], np.int64), np.array([], np.float32))
    inputs: CheckInputs = (CheckInput("a"),) * 3
    same = compare_outputs(Task.SPARSE, inputs, (one, other, none), (one, other, none))
    assert isinstance(same, EmbeddingComparison)
    assert (same.largest_difference, same.scale) == (0, 2)
    assert same.cosine_min == pytest.approx(1)
    found = compare_outputs(Task.SPARSE, inputs, (one, other, none), (other, other, none))
    assert isinstance(found, EmbeddingComparison)
    assert (found.largest_difference, found.worst_text) == (2, 0)
    assert found.cosine_min == pytest.approx(1 / np.sqrt(5 * 1.25))
