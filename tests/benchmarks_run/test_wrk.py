"""The latencies of wrk are those that it measured."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bench.wrk import undo_correction


def correct_as_wrk(counts: dict[int, int], interval: int) -> dict[int, int]:
    """Do what `stats_correct` of wrk does: add latencies that requests at fixed times would have had."""
    found = Counter(counts)
    for value in range(interval * 2, max(counts) + 1):
        number, other = found[value], value - interval
        while number and other > interval:
            found[other] += number
            other -= interval
    return {value: number for value, number in sorted(found.items()) if number and value >= min(counts)}


@given(st.dictionaries(st.integers(1, 300), st.integers(1, 4), min_size=1), st.integers(1, 200))
def test_the_latencies_that_wrk_adds_are_taken_away(counts: dict[int, int], interval: int) -> None:
    measured = [value / 1e6 for value, number in sorted(counts.items()) for _ in range(number)]
    assert undo_correction(list(correct_as_wrk(counts, interval).items()), interval) == measured
    assert undo_correction(sorted(counts.items()), None) == measured
