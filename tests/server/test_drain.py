"""Phases only go forward, at the times that were asked for, and a second request stops at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill_server.service.drain import Drain, Phase


def test_balancers_get_their_time() -> None:
    drain = Drain(lame_duck_s=5)
    serving = [drain.is_serving]
    phases = [drain.advance(100)]
    drain.stop(100)
    serving.append(drain.is_serving)
    phases += [drain.advance(104.9), drain.advance(105)]
    drain.finish()
    assert serving == [True, False]
    assert [*phases, drain.phase] == list(Phase)
    assert not drain.is_forced


def test_a_person_does_not_wait() -> None:
    drain = Drain(lame_duck_s=5)
    drain.stop(100, at_once=True)
    assert drain.phase is Phase.DRAINING


@pytest.mark.parametrize(
    ("lame_duck_s", "asked_at", "ends_at"),
    [(None, None, 100), (None, 40, 105), (None, 39.9, 100), (0, 99, 100), (7, None, 107), (7, 99, 107)],
)
def test_by_default_only_who_has_asked_lately_is_waited_for(
    lame_duck_s: float | None, asked_at: float | None, ends_at: float
) -> None:
    drain = Drain(lame_duck_s=lame_duck_s)
    if asked_at is not None:
        drain.note_probe(asked_at)
    drain.stop(100)
    assert drain.advance(ends_at - 0.01) is Phase.LAME_DUCK
    assert drain.advance(ends_at) is Phase.DRAINING


@pytest.mark.parametrize("later", [0.0, 3.0, 10.0])
def test_asking_twice_forces(later: float) -> None:
    drain = Drain(lame_duck_s=5)
    drain.stop(100)
    drain.advance(100 + later)
    drain.stop(100 + later)
    assert drain.is_forced
    assert drain.phase is Phase.STOPPED


def test_each_request_to_stop_is_told_after_the_phase_has_changed() -> None:
    drain, told = Drain(lame_duck_s=5), list[Phase]()
    drain.on_stop = lambda: told.append(drain.phase)
    drain.stop(100)
    drain.stop(101)
    assert told == [Phase.LAME_DUCK, Phase.STOPPED]


@given(st.lists(st.tuples(st.sampled_from(["stop", "at once", "advance", "finish"]), st.floats(0, 10))))
def test_no_order_of_events_leads_back(events: list[tuple[str, float]]) -> None:
    drain, now, last = Drain(lame_duck_s=5), 0.0, Phase.READY
    for event, passed_s in events:
        now += passed_s
        if event == "advance":
            drain.advance(now)
        elif event == "finish":
            drain.finish()
        else:
            drain.stop(now, at_once=event == "at once")
        assert drain.phase >= last
        last = drain.phase
