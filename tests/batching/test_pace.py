"""The predicted time of calls, and the size of full batches, follow what is measured."""

import random
from collections.abc import Callable

import pytest

from vecmill.batching.pace import CALLS_NEEDED, FIRST_TOKENS, MEMORY, PAIR_TOKENS, TRY_EVERY, BatchSize, Pace
from vecmill.values.engine_plan import CostModel


def test_before_any_call_the_warm_up_decides() -> None:
    pace = Pace(CostModel(fixed_s=0.01, per_token_s=0.001), narrow=1)
    assert pace.call_s([10, 20], 1) == pytest.approx(0.01 + 0.03, rel=0.02)
    assert pace.call_s([10, 20], 2) == pytest.approx(0.02, rel=0.02)


def test_a_long_text_costs_more_than_its_tokens() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    assert pace.text_cost_s(PAIR_TOKENS) == pytest.approx(2 * 0.001 * PAIR_TOKENS)
    assert pace.text_cost_s(4 * PAIR_TOKENS) == pytest.approx(10 * pace.text_cost_s(PAIR_TOKENS))


def slowed(pace: Pace, tokens: int) -> float:
    return pace.slowness * pace.text_cost_s(tokens)


def static(tokens: int) -> float:
    return 0.001 * tokens * (1 + tokens / PAIR_TOKENS)


def test_measured_calls_replace_the_prediction() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(100):
        pace.measure([100] * 4, 1, 4.0)
    assert pace.call_s([100] * 4, 1) == pytest.approx(4.0, rel=0.01)
    assert slowed(pace, 100) == pytest.approx(1.0, rel=0.01)


def test_one_slow_call_moves_the_prediction_little() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = pace.call_s([100], 1)
    pace.measure([100], 1, 11 * before)
    assert before * (MEMORY + (1 - MEMORY) * 11) <= pace.call_s([100], 1) <= 2.6 * before


def test_a_slower_machine_slows_all_lengths_and_leaves_the_count_of_work() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(200):
        pace.measure([100], 1, static(100))
        pace.measure([4_000], 1, static(4_000) / 4)
    long_s, short_s = slowed(pace, 4_000), slowed(pace, 100)
    work_s = pace.text_cost_s(4_000)
    for _ in range(30):
        pace.measure([100], 1, 2 * static(100))
    assert slowed(pace, 100) == pytest.approx(2 * short_s, rel=0.05)
    assert 1.4 * long_s < slowed(pace, 4_000) < 2.1 * long_s
    assert pace.text_cost_s(4_000) == work_s


def test_a_length_never_measured_takes_the_speed_of_the_nearest_shorter_one() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(200):
        pace.measure([100], 1, 3 * static(100))
    assert slowed(pace, 4_000) == pytest.approx(3 * static(4_000), rel=0.01)
    assert slowed(pace, 10) == pytest.approx(3 * static(10), rel=0.01)


def test_long_texts_are_learnt_apart() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(300):
        pace.measure([100], 1, 3 * static(100))
        pace.measure([4_000], 1, static(4_000) / 4)
    assert slowed(pace, 4_000) == pytest.approx(static(4_000) / 4, rel=0.1)
    assert slowed(pace, 100) == pytest.approx(3 * static(100), rel=0.1)


def test_wide_calls_say_nothing_about_narrow_ones() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = slowed(pace, 100)
    for _ in range(100):
        pace.measure([100], 2, 1.0)
    assert slowed(pace, 100) == before
    assert pace.call_s([100], 2) == pytest.approx(1.0, rel=0.01)


def test_an_engine_with_long_calls_follows_a_change_within_seconds() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.01), narrow=1)
    before, now = pace.call_s([100], 1), 0.0
    while pace.call_s([100], 1) < 1.7 * before:  # since the machine has become half as fast
        pace.measure([100], 1, 2 * before)
        now += 2 * before
    assert now <= 10.0


SEED = 20_261_123
PER_TOKEN_S = 1e-4

# The seconds of a call of so many tokens.
Engine = Callable[[int], float]


def small_cache(tokens: int) -> float:
    """An engine that is slower once a batch does not fit into the cache."""
    return PER_TOKEN_S * tokens * (1.0 + 0.2 * max(0, tokens - 256) / 1024)


def fixed_cost(tokens: int) -> float:
    """An engine for which the fixed cost of a call counts up to a thousand tokens."""
    return 0.008 + PER_TOKEN_S * tokens


def accelerator(tokens: int) -> float:
    """An engine that takes almost as long for one token as for thousands."""
    return 0.002 + 1e-7 * tokens


def serve(
    engine: Engine,
    calls: int,
    *,
    size: BatchSize,
    pace: Pace,
    noise: float = 0.05,
    waiting: int = 1_000_000,
) -> float:
    """Compute full batches while so many tokens wait; return the seconds for each token."""
    chance = random.Random(SEED)
    used_s = tokens = 0.0
    for _ in range(calls):
        wanted = size.next_tokens(waiting)
        lengths = [32] * (wanted // 32)
        seconds = engine(sum(lengths)) * chance.lognormvariate(0.0, noise)
        size.measure(lengths, seconds)
        pace.measure(lengths, 1, seconds)
        used_s, tokens = used_s + seconds, tokens + sum(lengths)
    return used_s / tokens


def make_size(engine: Engine, given: int | None = None) -> tuple[BatchSize, Pace]:
    """A size and a pace as warm-up leaves them: from calls of 16 and 256 tokens."""
    per_token_s = (engine(256) - engine(16)) / 240
    pace = Pace(CostModel(max(engine(16) - 16 * per_token_s, 0.0), per_token_s), narrow=1)
    return BatchSize(given, pace), pace


@pytest.mark.parametrize(
    ("engine", "sizes"), [(small_cache, {256}), (fixed_cost, {1024, 2048}), (accelerator, {16_384})]
)
def test_the_size_that_is_fastest_is_found_and_kept(engine: Engine, sizes: set[int]) -> None:
    size, pace = make_size(engine)
    serve(engine, 1_500, size=size, pace=pace)
    assert size.tokens in sizes
    per_token_s = serve(engine, 1_000, size=size, pace=pace)
    assert size.tokens in sizes
    best_s = min(engine(tokens) / tokens for tokens in (256, 512, 1024, 2048, 16_384))
    assert per_token_s <= 1.05 * best_s


def test_the_size_follows_an_engine_that_changes() -> None:
    size, pace = make_size(small_cache)
    serve(small_cache, 1_000, size=size, pace=pace)
    assert size.tokens == 256
    serve(fixed_cost, 1_500, size=size, pace=pace)
    assert size.tokens >= 1024


def test_a_smaller_size_is_found_although_too_little_waits_for_a_larger_one() -> None:
    size, pace = make_size(small_cache)
    serve(small_cache, 1_000, size=size, pace=pace, waiting=600)
    assert size.tokens == 256


def test_a_size_that_makes_no_difference_is_not_changed_by_noise() -> None:
    def even(tokens: int) -> float:
        return PER_TOKEN_S * tokens

    size, pace = make_size(even)
    per_token_s = serve(even, 2_000, size=size, pace=pace, noise=0.1)
    assert per_token_s == pytest.approx(PER_TOKEN_S, rel=0.02)


def test_calls_never_become_long() -> None:
    def slow(tokens: int) -> float:
        return 0.5 + 1e-3 * tokens  # so twice the size would be faster, and would take more than a second

    size, pace = make_size(slow)
    serve(slow, 500, size=size, pace=pace)
    assert size.tokens <= FIRST_TOKENS


def test_a_given_size_is_never_changed() -> None:
    size, pace = make_size(fixed_cost, given=64)
    serve(fixed_cost, 20 * TRY_EVERY * CALLS_NEEDED, size=size, pace=pace)
    assert size.tokens == 64
    assert {size.next_tokens(10_000) for _ in range(3 * TRY_EVERY)} == {64}


def test_other_sizes_are_tried_only_if_their_batches_would_be_full() -> None:
    size, _ = make_size(fixed_cost)
    assert {size.next_tokens(600) for _ in range(10 * TRY_EVERY)} == {256, 512}
    assert {size.next_tokens(100) for _ in range(10 * TRY_EVERY)} == {512}
