"""The size of full batches follows the measured speed of the engine that runs."""

import random
from collections.abc import Callable

import pytest

from vecmill.batching.batch_size import CALLS_NEEDED, FIRST_TOKENS, TRY_EVERY, BatchSize
from vecmill.batching.pace import Pace
from vecmill.values.engine_info import CostModel

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
