"""The window grows while lines come back quickly, shrinks when they do not, and never closes."""

from vecmill_server.batches.window import FEWEST_TEXTS, MOST_BYTES, MOST_TEXTS, TARGET_S, Window


def has_room(window: Window) -> bool:
    """Asked anew each time."""
    return window.has_room


def round_trip(window: Window, duration_s: float) -> None:
    """As many lines of one text as there is room for, each of which takes so long."""
    count = 0
    while window.has_room:
        window.enter(1, 10)
        count += 1
    for _ in range(count):
        window.leave(1, 10)
        window.observe(1, duration_s)


def test_it_doubles_with_each_quick_round_trip_up_to_its_most() -> None:
    window = Window()
    round_trip(window, 0.01)
    assert window.limit == 2 * FEWEST_TEXTS
    for _ in range(10):
        round_trip(window, 0.01)
    assert window.limit == MOST_TEXTS


def test_it_shrinks_while_lines_are_late_but_a_few_stay() -> None:
    window = Window(limit=MOST_TEXTS)
    round_trip(window, 2 * TARGET_S)
    assert MOST_TEXTS / 3 < window.limit < MOST_TEXTS * 2 / 3
    for _ in range(50):
        round_trip(window, 10 * TARGET_S)
    assert window.limit == FEWEST_TEXTS


def test_bytes_are_bounded_too() -> None:
    window = Window(limit=MOST_TEXTS)
    window.enter(1, MOST_BYTES)
    assert not has_room(window)
    window.leave(1, MOST_BYTES)
    assert has_room(window)


def test_one_line_may_always_start_however_large() -> None:
    window = Window()
    assert has_room(window)
    window.enter(10 * MOST_TEXTS, 10 * MOST_BYTES)
    assert not has_room(window)
    window.leave(10 * MOST_TEXTS, 10 * MOST_BYTES)
    assert has_room(window)
