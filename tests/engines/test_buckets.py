"""Batches divided among compiled shapes, and texts padded to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vecmill.engines.buckets import Bucket, BucketGrid, pad_texts, select_texts
from vecmill.values.batch import Batch, TokenSequence

MAX_TOKENS = 256
GRIDS = st.builds(
    lambda shortest, texts: BucketGrid.covering(MAX_TOKENS, shortest=shortest, texts=tuple(sorted(texts))),
    st.integers(1, 300),
    st.sets(st.integers(1, 20), min_size=1, max_size=4),
)


def batch_of(lengths: list[int], seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    return Batch.of(
        [
            TokenSequence.of(
                random.integers(1, 99, length).tolist(),
                random.integers(0, 2, length).tolist(),
                prompt_length=int(random.integers(0, length)),
                unseen=int(random.integers(0, length)),
            )
            for length in lengths
        ]
    )


@given(grid=GRIDS, lengths=st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=60))
@settings(deadline=None)
def test_every_text_is_computed_once_and_fits(grid: BucketGrid, lengths: list[int]) -> None:
    assignments = list(grid.divide(lengths))
    assigned = [index for assignment in assignments for index in assignment.text_indices]
    assert sorted(assigned) == list(range(len(lengths)))
    for assignment in assignments:
        assert assignment.bucket in grid.buckets
        assert 1 <= len(assignment.text_indices) <= assignment.bucket.texts
        assert max(lengths[index] for index in assignment.text_indices) <= assignment.bucket.length


@given(grid=GRIDS, lengths=st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=60))
@settings(deadline=None)
def test_no_text_makes_its_own_call_longer_than_it_must_be(grid: BucketGrid, lengths: list[int]) -> None:
    for assignment in grid.divide(lengths):
        longest = max(lengths[index] for index in assignment.text_indices)
        assert assignment.bucket.length == grid.length_for(longest)


def test_a_grid_covers_the_longest_text_and_nothing_beyond() -> None:
    grid = BucketGrid.covering(200, shortest=32, texts=(1, 8))
    assert grid.lengths == (32, 64, 128, 200)
    assert grid.buckets[:3] == (Bucket(32, 1), Bucket(32, 8), Bucket(64, 1))
    assert BucketGrid.covering(16, shortest=32).lengths == (16,)
    assert BucketGrid.covering(64, shortest=32).lengths == (32, 64)


def test_shorter_texts_take_places_that_are_computed_anyway() -> None:
    grid = BucketGrid((16, 64), (1, 4))
    assignments = list(grid.divide([12, 40, 9, 38, 11, 10, 9]))
    assert [(assignment.bucket, assignment.text_indices) for assignment in assignments] == [
        (Bucket(64, 4), (1, 3, 0, 4)),
        (Bucket(16, 4), (5, 2, 6)),
    ]


@pytest.mark.parametrize(
    ("count", "calls"), [(1, [1]), (2, [4]), (3, [4]), (5, [4, 1]), (7, [4, 4]), (16, [16]), (20, [16, 4])]
)
def test_few_places_stay_free(count: int, calls: list[int]) -> None:
    assignments = list(BucketGrid((32,), (1, 4, 16)).divide([20] * count))
    assert [assignment.bucket.texts for assignment in assignments] == calls


def test_a_text_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="text of 33 tokens does not fit into buckets of at most 32 tokens"):
        list(BucketGrid((16, 32), (1,)).divide([33]))


def test_chosen_texts_keep_all_that_is_theirs() -> None:
    batch = batch_of([3, 1, 7, 4])
    chosen = select_texts(batch, [2, 0])
    assert chosen.lengths.tolist() == [7, 3]
    for place, original in enumerate([2, 0]):
        here = slice(chosen.offsets[place], chosen.offsets[place + 1])
        there = slice(batch.offsets[original], batch.offsets[original + 1])
        assert np.array_equal(chosen.token_ids[here], batch.token_ids[there])
        assert np.array_equal(chosen.token_type_ids[here], batch.token_type_ids[there])
        assert chosen.prompt_lengths[place] == batch.prompt_lengths[original]
        assert chosen.seen_lengths[place] == batch.seen_lengths[original]


def test_padding_is_on_the_right_and_seen_by_none() -> None:
    batch = batch_of([3, 1, 5])
    padded = pad_texts(batch, texts=5, length=8, pad_id=77)
    assert {values.shape for values in padded.values()} == {(5, 8)}
    assert {values.dtype for values in padded.values()} == {np.dtype(np.int64)}
    for place in range(3):
        tokens = slice(batch.offsets[place], batch.offsets[place + 1])
        length = int(batch.lengths[place])
        assert padded["input_ids"][place].tolist() == [*batch.token_ids[tokens], *[77] * (8 - length)]
        assert padded["token_type_ids"][place].tolist() == [
            *batch.token_type_ids[tokens],
            *[0] * (8 - length),
        ]
        seen = int(batch.seen_lengths[place])
        assert padded["attention_mask"][place].tolist() == [1] * seen + [0] * (8 - seen)
    # A text that is not there still sees one token: a softmax over nothing would be NaN.
    assert padded["input_ids"][3:].tolist() == [[77] * 8] * 2
    assert padded["attention_mask"][3:].tolist() == [[1] + [0] * 7] * 2
    assert padded["position_ids"].tolist() == [list(range(8))] * 5


def test_a_batch_that_just_fits_is_laid_out_as_it_is() -> None:
    batch = Batch.of([TokenSequence.of([4, 5]), TokenSequence.of([6, 7])])
    padded = pad_texts(batch, texts=2, length=2, pad_id=0)
    assert padded["input_ids"].tolist() == [[4, 5], [6, 7]]
    assert padded["attention_mask"].min() == 1
