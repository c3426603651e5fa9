"""Two sets of vectors are compared as what they are, and a sample is chosen by chance alone."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill.commands.space.space_verdict import Verdict, compare_vectors, find_kind, to_directions
from vecmill.commands.space.stored_vectors import choose_items
from vecmill.values.embeddings import OutputDtype
from vecmill.vectors import quantize

ROWS = np.random.default_rng(5).standard_normal((50, 64)).astype(np.float32)
RANGES = np.stack([ROWS.min(axis=0), ROWS.max(axis=0)])


@pytest.mark.parametrize("kind", OutputDtype)
def test_each_type_points_where_its_floats_do(kind: OutputDtype) -> None:
    stored = quantize(ROWS, kind, RANGES)
    found = to_directions(stored, kind)
    cosines = (found * ROWS).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(ROWS, axis=1)
    assert cosines.min() > 0.6
    assert compare_vectors(stored, stored, kind).verdict is Verdict.SAME_VALUES
    moved = quantize(np.roll(ROWS, 1, axis=0), kind, RANGES)
    assert compare_vectors(stored, moved, kind).verdict is Verdict.OTHER_SPACE


@pytest.mark.parametrize("kind", OutputDtype)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_type_of_numbers_is_found(kind: OutputDtype, is_named: bool) -> None:
    stored = quantize(ROWS, kind, RANGES)
    assert find_kind(stored, str(kind) if is_named else None, 64) is kind


def test_a_type_that_the_numbers_do_not_have_is_not_believed() -> None:
    assert find_kind(ROWS, "int8", 64) is OutputDtype.FLOAT
    assert find_kind(quantize(ROWS, OutputDtype.INT8, RANGES), "float", 64) is OutputDtype.INT8


def test_a_vector_of_zeros_is_like_no_other() -> None:
    zeros = np.zeros_like(ROWS)
    found = compare_vectors(zeros, ROWS, OutputDtype.FLOAT)
    assert (found.median, found.verdict) == (0, Verdict.OTHER_SPACE)


def test_half_of_the_texts_decide_between_other_texts_and_another_space() -> None:
    for changed, verdict in ((25, Verdict.OTHER_TEXTS), (26, Verdict.OTHER_SPACE)):
        stored = ROWS.copy()
        stored[:changed] *= -1
        found = compare_vectors(stored, ROWS, OutputDtype.FLOAT)
        assert found.verdict is verdict
        assert found.fits.tolist() == [False] * changed + [True] * (50 - changed)


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 2**32))
def test_a_sample_has_as_many_items_as_it_can_in_their_order(total: int, count: int, seed: int) -> None:
    found_total, found = choose_items(range(100, 100 + total), count, random.Random(seed))
    assert (found_total, len(found)) == (total, min(total, count))
    indices = [index for index, _ in found]
    assert indices == sorted(set(indices))
    assert all(item == index + 100 for index, item in found)


def test_every_item_is_as_likely_as_any_other() -> None:
    chance, counts = random.Random(1), [0] * 20
    for _ in range(4000):
        for index, _ in choose_items(range(20), 5, chance)[1]:
            counts[index] += 1
    assert min(counts) > 900
    assert max(counts) < 1100
