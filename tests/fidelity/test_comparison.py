"""The comparison tells rounding from a wrong row."""

import numpy as np
import pytest

from vecmill.fidelity.comparison import compare_rows
from vecmill.fidelity.sample import ODD_TEXTS, sample_texts

ROWS = np.random.default_rng(3).standard_normal((60, 32)).astype(np.float32)


def test_equal_rows_agree_in_everything() -> None:
    found = compare_rows(ROWS, ROWS)
    assert (found.texts, found.largest_difference, found.neighbours_kept) == (60, 0.0, 1.0)
    assert found.cosine_min == pytest.approx(1.0)


def test_one_wrong_row_is_named() -> None:
    wrong = ROWS.copy()
    wrong[17] = ROWS[18]
    found = compare_rows(wrong, ROWS)
    assert found.worst_text == 17
    assert found.cosine_min < 0.9 < found.cosine_mean
    assert found.neighbours_kept is not None
    assert found.neighbours_kept < 1


def test_neighbours_are_counted_by_hand() -> None:
    # On a circle the ten nearest are five on either side; turning one text to the far side costs it all
    # ten, and its old neighbours one each.
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turned = circle.copy()
    turned[0] = -circle[0] + np.float32(1e-3)
    found = compare_rows(turned, circle)
    assert found.neighbours_kept is not None
    lost = round((1 - found.neighbours_kept) * 600)
    assert 20 <= lost <= 32  # its own 10, its 10 old neighbours', and those whom it now displaces


def test_rows_that_are_not_finite_are_infinitely_far() -> None:
    broken = ROWS.copy()
    broken[0, 0] = np.nan
    assert compare_rows(broken, ROWS).largest_difference == np.inf


def test_a_handful_of_texts_says_nothing_of_neighbours() -> None:
    assert compare_rows(ROWS[:20], ROWS[:20]).neighbours_kept is None


def test_rows_of_zeros_agree_with_rows_of_zeros() -> None:
    zeros = np.zeros((3, 4), np.float32)
    assert compare_rows(zeros, zeros).cosine_min == 1.0


def test_sample_texts_are_different_and_the_same_each_time() -> None:
    texts = sample_texts(200)
    assert texts == sample_texts(200)
    assert len(set(texts)) == 200
    assert texts[: len(ODD_TEXTS)] == list(ODD_TEXTS)
    assert sample_texts(200, seed=1) != texts
