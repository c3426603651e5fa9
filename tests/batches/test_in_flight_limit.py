"""The limit grows while lines come back quickly, shrinks when they do not, and never closes."""

from vecmill_server.batches.in_flight_limit import (
    FEWEST_TEXTS,
    MOST_BYTES,
    MOST_TEXTS,
    TARGET_S,
    InFlightLimit,
)


def has_room(limit: InFlightLimit) -> bool:
    """Asked anew each time."""
    return limit.has_room


def round_trip(limit: InFlightLimit, duration_s: float) -> None:
    """As many lines of one text as there is room for, each of which takes so long."""
    count = 0
    while limit.has_room:
        limit.enter(1, 10)
        count += 1
    for _ in range(count):
        limit.leave(1, 10)
        limit.observe(1, duration_s)


def test_it_doubles_with_each_quick_round_trip_up_to_its_most() -> None:
    limit = InFlightLimit()
    round_trip(limit, 0.01)
    assert limit.limit == 2 * FEWEST_TEXTS
    for _ in range(10):
        round_trip(limit, 0.01)
    assert limit.limit == MOST_TEXTS


def test_it_shrinks_while_lines_are_late_but_a_few_stay() -> None:
    limit = InFlightLimit(limit=MOST_TEXTS)
    round_trip(limit, 2 * TARGET_S)
    assert MOST_TEXTS / 3 < limit.limit < MOST_TEXTS * 2 / 3
    for _ in range(50):
        round_trip(limit, 10 * TARGET_S)
    assert limit.limit == FEWEST_TEXTS


def test_bytes_are_bounded_too() -> None:
    limit = InFlightLimit(limit=MOST_TEXTS)
    limit.enter(1, MOST_BYTES)
    assert not has_room(limit)
    limit.leave(1, MOST_BYTES)
    assert has_room(limit)


def test_one_line_may_always_start_however_large() -> None:
    limit = InFlightLimit()
    assert has_room(limit)
    limit.enter(10 * MOST_TEXTS, 10 * MOST_BYTES)
    assert not has_room(limit)
    limit.leave(10 * MOST_TEXTS, 10 * MOST_BYTES)
    assert has_room(limit)
