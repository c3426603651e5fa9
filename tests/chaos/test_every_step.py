"""Whichever step of whichever request fails or is cancelled, the others are answered and nothing is left."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from chaos.scenario import LONG, WAVE, Answer, Ask, Stage, Trip, embeddings, make_waves, stage
from vecmill.errors import InferenceFailed
from vecmill.values.embeddings import Embeddings

MOST_STEPS = 400
# A loop over the steps of a run that ends sooner has not met its fault.
FEWEST_CALLS, FEWEST_MESSAGES, FEWEST_AWAITS = 5, 20, 1
# A call that takes longer hangs. The requests take milliseconds.
HANG_S = 0.25
ENGINE_FAULTS = {500, 424}  # 424 is TEI's status


def fail(_embeddings: Embeddings) -> Embeddings:
    raise InferenceFailed("planted")


def fail_otherwise(_embeddings: Embeddings) -> Embeddings:
    raise ZeroDivisionError("planted")


def run_out_of_memory(_embeddings: Embeddings) -> Embeddings:
    raise MemoryError("planted")


def end_the_thread(_embeddings: Embeddings) -> Embeddings:
    raise SystemExit("planted")


def spoil_values(embeddings: Embeddings) -> Embeddings:
    return replace(embeddings, values=np.full_like(embeddings.values, np.nan))


def drop_one(embeddings: Embeddings) -> Embeddings:
    return Embeddings.one_per_text(embeddings.values[:-1], computed_tokens=embeddings.computed_tokens)


def add_one(embeddings: Embeddings) -> Embeddings:
    values = np.concatenate([embeddings.values, embeddings.values[:1]])
    return Embeddings.one_per_text(values, computed_tokens=embeddings.computed_tokens)


# Half of the requests and every third step at every commit, all of them at full size.
STRIDES = [pytest.param(2, 3, id="some"), pytest.param(1, 1, id="all", marks=pytest.mark.full)]
STEPS = [pytest.param(2, id="some"), pytest.param(1, id="all", marks=pytest.mark.full)]
SPOILS = [
    fail,
    spoil_values,
    drop_one,
    end_the_thread,
    *(pytest.param(spoil, marks=pytest.mark.full) for spoil in (fail_otherwise, run_out_of_memory, add_one)),
]


async def usual_outcomes(it: Stage, waves: list[list[Ask]]) -> list[tuple[int | None, str]]:
    """The outcomes without a fault. The first run measures the ranges of 8-bit embeddings for all others."""
    await it.play(waves)
    usual = [answer.outcome for answer in await it.play(waves)]
    assert {status for status, _ in usual} == {200, 400, 404}
    return usual


def differences(answers: list[Answer], usual: list[tuple[int | None, str]]) -> list[Answer]:
    """The answers that are not as usual."""
    return [answer for answer, expected in zip(answers, usual, strict=True) if answer.outcome != expected]


def assert_cost(
    spoil: Callable[[Embeddings], Embeddings],
    texts: int,
    answers: list[Answer],
    usual: list[tuple[int | None, str]],
) -> None:
    """Assert that a fault in a call of `texts` texts cost no request but theirs."""
    places = [place for place, answer in enumerate(answers) if answer.outcome != usual[place]]
    assert {answers[place].status for place in places} <= ENGINE_FAULTS
    assert len({place // WAVE for place in places}) <= 1, "requests of other waves failed too"
    if spoil is not spoil_values and texts > 1:  # the call is repeated in halves, without the fault
        assert places == []


@pytest.mark.promise("failure-contained", "answered-once", "finite-embeddings")
@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize(("stride", "step"), STRIDES)
async def test_a_fault_in_any_engine_call_costs_at_most_the_texts_of_that_call(
    spoil: Callable[[Embeddings], Embeddings], stride: int, step: int
) -> None:
    async with stage() as it:
        waves = make_waves()[::stride]
        usual = await usual_outcomes(it, waves)
        it.engine.spoil = spoil
        for number in range(1, MOST_STEPS, step):
            it.engine.trip = trip = Trip(number)
            answers = await it.play(waves)
            assert all(answer.is_whole and answer.error is None for answer in answers)
            if trip.was_reached:
                assert_cost(spoil, it.engine.spoilt_texts, answers, usual)
            await it.assert_at_rest()
            if not trip.was_reached:
                assert differences(answers, usual) == []
                assert number > FEWEST_CALLS
                return
        raise AssertionError("the scenario never ran without the fault")


@pytest.mark.promise("answered-once", "departed-clients")
@pytest.mark.parametrize("kind", ["send", "receive", "leave"])
@pytest.mark.parametrize(("stride", "step"), STRIDES)
async def test_a_failure_to_send_or_receive_costs_its_own_request_alone(
    kind: str, stride: int, step: int
) -> None:
    async with stage() as it:
        waves = make_waves()[::stride]
        usual = await usual_outcomes(it, waves)
        it.is_leaving = kind == "leave"
        for number in range(1, MOST_STEPS, step):
            trip = Trip(number)
            if kind == "send":
                it.sending = trip
            else:
                it.receiving = trip
            answers = await it.play(waves)
            assert len(differences(answers, usual)) <= 1
            await it.assert_at_rest()
            if not trip.was_reached:
                assert differences(answers, usual) == []
                assert number > FEWEST_MESSAGES
                return
        raise AssertionError("the scenario never ran without the fault")


CANCELLED = [
    embeddings("one"),
    embeddings(*(f"text {number}" for number in range(100))),
    embeddings(LONG, parts=3),
    embeddings("eight bits", output_dtype="int8"),
    Ask("/rerank", {"query": "which?", "documents": ["this", "shared"]}),
    Ask("/metrics", method="GET"),
]


@pytest.mark.promise("departed-clients")
@pytest.mark.parametrize("ask", CANCELLED, ids=["one", "many", "long", "int8", "rerank", "metrics"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_request_may_be_cancelled_at_any_of_its_awaits(ask: Ask, step: int) -> None:
    async with stage() as it:
        for number in range(1, MOST_STEPS, step):
            trip = Trip(number)
            other = embeddings("shared", f"the other {number}")
            _, bystander = await asyncio.gather(it.ask(ask, cancel=trip), it.ask(other))
            assert bystander.status == 200
            await it.assert_at_rest()
            if not trip.was_reached:
                assert number > FEWEST_AWAITS
                return
        raise AssertionError("the request never ended without being cancelled")


def make_hold(it: Stage) -> Callable[[Embeddings], Embeddings]:
    """Return a fault that holds a call until the engine is closed."""

    def hold(embeddings: Embeddings) -> Embeddings:
        it.engine.released.wait()
        return embeddings

    return hold


@pytest.mark.promise("lost-lane-noticed", "answered-once")
@pytest.mark.parametrize(
    "step", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.full)]
)
async def test_when_the_lane_hangs_in_any_call_every_request_is_answered(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.batching.dispatcher.TICK_S", HANG_S / 5)
    number, was_reached = 0, True
    while was_reached:
        number += step
        async with stage(hang_s=HANG_S) as it:
            it.engine.spoil = make_hold(it)
            it.engine.trip = Trip(number)
            answers = await it.play(make_waves(eight_bits="float"))
            assert all(answer.is_whole and answer.error is None for answer in answers)
            counts = it.dispatcher.counts_snapshot()
            assert counts.open == 0
            was_reached = it.engine.trip.was_reached
            if was_reached:
                assert {answer.status for answer in answers} >= {200, 503}
                await it.assert_at_rest()
    assert number > FEWEST_CALLS


async def test_a_request_that_is_left_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        # A request, cancelled after its body was received, whose text stays in the queue and is computed.
        it.engine.spoil, it.engine.trip = make_hold(it), Trip(1)
        monkeypatch.setattr(it.dispatcher.scheduler.queue, "cancel", lambda request, now: None)
        await it.ask(embeddings("left"), cancel=Trip(2))
        with pytest.raises(AssertionError):
            await it.assert_at_rest()
        it.engine.released.set()
