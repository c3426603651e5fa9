"""The spans of a request follow each other without a gap, however the request ended."""

import random
from types import SimpleNamespace

import pytest

from vecmill.values.observer import BatchTimeline, EngineTimes, RunTimeline
from vecmill_server.telemetry.tracing.layout import (
    MAX_BATCHES,
    SpanDraft,
    batch_id,
    lay_out_batch,
    lay_out_request,
)
from vecmill_server.telemetry.tracing.trace import RequestTrace, Stage


class Time:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def begin(clock: Time) -> RequestTrace:
    context = SimpleNamespace(trace_id=1, span_id=2)
    return RequestTrace(context, None, clock.now, is_sampled=True, clock=clock)


def until_answer(clock: Time) -> RequestTrace:
    """A trace whose body was read from 10 to 11 and parsed from 11 to 12."""
    trace = begin(clock)
    trace.begin(Stage.READ_BODY)
    clock.now = 11.0
    trace.enter(Stage.PARSE)
    clock.now = 12.0
    trace.enter(Stage.ANSWER)
    return trace


def finish(trace: RequestTrace, clock: Time) -> list[SpanDraft]:
    """The spans of a trace whose response was written from 20 to 21."""
    clock.now = 20.0
    trace.enter(Stage.WRITE_RESPONSE)
    return lay_out_request(trace, 21.0)


def run_of(trace: RequestTrace, *ends: float | None) -> RunTimeline:
    """A run that was tokenised, admitted, started, finished and resumed at these times."""
    run = trace.begin_run(12.5, 3)
    run.tokenized_at, run.admitted_at, run.started_at, run.finished_at, run.resumed_at = ends
    return run


def batch(taken_at: float, ended_at: float | None, *calls: tuple[float, float]) -> BatchTimeline:
    found = BatchTimeline(lane=0, width=1, texts=3, tokens=9, taken_at=taken_at, ended_at=ended_at)
    found.calls += [EngineTimes(began_at, until, 3) for began_at, until in calls]
    return found


def table(drafts: list[SpanDraft]) -> list[tuple[str, float, float]]:
    return [(draft.name, draft.began_at, draft.ended_at) for draft in drafts]


def test_a_request_in_one_batch() -> None:
    clock = Time()
    trace = until_answer(clock)
    run = run_of(trace, 13.0, 13.1, 14.0, 16.0, 17.0)
    run.enter(batch(14.0, 16.0, (14.25, 15.75)))
    drafts = finish(trace, clock)
    assert table(drafts) == [
        ("read_body", 10.0, 11.0),
        ("parse", 11.0, 12.0),
        ("tokenise", 12.0, 13.0),
        ("queue", 13.0, 14.0),
        ("batch", 14.0, 16.0),
        ("deliver", 16.0, 17.0),
        ("build_response", 17.0, 20.0),
        ("write_response", 20.0, 21.0),
    ]
    assert table(list(drafts[4].children)) == [("engine", 14.25, 15.75)]
    ids = {drafts[place].attributes["vecmill.batch.id"] for place in (3, 4)}
    ids |= {child.attributes["vecmill.batch.id"] for child in drafts[4].children}
    assert ids == {batch_id(next(iter(run.batches)))}


def test_a_request_in_several_batches_has_them_inside_one_span() -> None:
    clock = Time()
    trace = until_answer(clock)
    run = run_of(trace, 13.0, 13.1, 14.0, 18.0, 19.0)
    for taken_at in (14.0, 15.0, 17.0):
        run.enter(batch(taken_at, taken_at + 1, (taken_at, taken_at + 1)))
    compute = finish(trace, clock)[4]
    assert (compute.name, compute.began_at, compute.ended_at) == ("compute", 14.0, 18.0)
    assert table(list(compute.children)) == [
        ("batch", 14.0, 15.0),
        ("batch", 15.0, 16.0),
        ("batch", 17.0, 18.0),
    ]
    assert compute.attributes == {"vecmill.batches": 3}


def test_a_request_in_very_many_batches_has_spans_for_the_first() -> None:
    clock = Time()
    trace = until_answer(clock)
    run = run_of(trace, 13.0, 13.1, 14.0, 18.0, 19.0)
    for _ in range(3 * MAX_BATCHES):
        run.enter(batch(14.0, 15.0))
    compute = finish(trace, clock)[4]
    assert len(compute.children) == MAX_BATCHES
    assert compute.attributes == {"vecmill.batches": 3 * MAX_BATCHES}


def test_a_request_that_joins_a_running_batch_has_its_own_share_of_it() -> None:
    clock = Time()
    trace = until_answer(clock)
    run_of(trace, 13.0, 14.0, 14.0, 16.0, 17.0).enter(batch(12.2, 16.0, (12.3, 13.5), (13.6, 15.9)))
    queue, share = finish(trace, clock)[3:5]
    assert table([queue, share]) == [("queue", 13.0, 14.0), ("batch", 14.0, 16.0)]
    assert table(list(share.children)) == [("engine", 14.0, 15.9)]


@pytest.mark.parametrize(
    ("ends", "names", "failed"),
    [
        ((None, None, None, None, None), ["tokenise"], ["tokenise"]),
        ((13.0, None, None, None, None), ["tokenise", "build_response"], []),
        ((13.0, 13.1, None, 15.0, None), ["tokenise", "queue", "build_response"], ["queue"]),
        ((13.0, 13.1, 14.0, 15.0, None), ["tokenise", "queue", "batch", "build_response"], ["batch"]),
    ],
    ids=["not tokenised", "refused", "expired in the queue", "failed in the engine"],
)
def test_a_request_that_fails_has_the_spans_until_then(
    ends: tuple[float | None, ...], names: list[str], failed: list[str]
) -> None:
    clock = Time()
    trace = until_answer(clock)
    run = run_of(trace, *ends)
    run.has_failed = True
    if ends[2] is not None:
        run.enter(batch(14.0, None))
    drafts = finish(trace, clock)
    assert [draft.name for draft in drafts[2:-1]] == names
    assert [draft.name for draft in drafts if draft.has_failed] == failed
    assert contiguous(drafts, 10.0, 21.0)


def test_a_composed_request_has_a_span_for_each_of_its_parts() -> None:
    clock = Time()
    trace = until_answer(clock)
    for finished_at in (15.0, 18.0):
        run_of(trace, 13.0, 13.1, 14.0, finished_at, finished_at + 0.5).enter(batch(14.0, finished_at))
    drafts = finish(trace, clock)
    answer = drafts[2]
    assert table(drafts[2:4]) == [("answer", 12.0, 18.5), ("build_response", 18.5, 20.0)]
    assert table(list(answer.children)) == [("run", 12.5, 15.5), ("run", 12.5, 18.5)]
    for part in answer.children:
        assert [draft.name for draft in part.children] == ["tokenise", "queue", "batch", "deliver"]
        assert contiguous(list(part.children), part.began_at, part.ended_at)


def test_a_request_without_a_computation_is_handled() -> None:
    clock = Time()
    trace = begin(clock)
    assert table(finish(trace, clock)) == [("handle", 10.0, 20.0), ("write_response", 20.0, 21.0)]


def test_a_request_whose_client_left_has_no_response() -> None:
    trace = until_answer(Time())
    assert table(lay_out_request(trace, 21.0))[-1] == ("answer", 12.0, 21.0)


def test_the_spans_of_a_batch_are_its_calls() -> None:
    drafts = lay_out_batch(batch(14.0, 16.0, (14.25, 15.0), (15.25, 15.75)), 16.0)
    assert table(drafts) == [("engine", 14.25, 15.0), ("engine", 15.25, 15.75)]


@pytest.mark.promise("traces-complete")
def test_the_spans_are_contiguous_for_any_times() -> None:
    random_ = random.Random(20_261_122)
    for _ in range(2_000):
        clock = Time()
        trace = until_answer(clock)
        for _ in range(random_.choice((0, 1, 1, 1, 2, 5))):
            times = sorted(random_.uniform(12.5, 20.0) for _ in range(5))
            count = random_.randrange(6)
            ends: list[float | None] = [*times[:count], *([None] * (5 - count))]
            if count == 3:  # a request that started has finished
                ends[2] = None
            run = run_of(trace, *ends)
            for _ in range(random_.choice((0, 1, 3)) if ends[2] is not None else 0):
                taken_at = random_.uniform(12.0, times[3])
                run.enter(batch(taken_at, random_.choice((None, times[3])), (taken_at, times[3])))
        drafts = finish(trace, clock)
        assert contiguous(drafts, 10.0, 21.0)
        assert all(is_inside(draft) for draft in drafts)


def contiguous(drafts: list[SpanDraft], began_at: float, ended_at: float) -> bool:
    ends = [began_at, *(draft.ended_at for draft in drafts)]
    return [draft.began_at for draft in drafts] == ends[:-1] and ends[-1] == ended_at and sorted(ends) == ends


def is_inside(draft: SpanDraft) -> bool:
    """Whether all spans inside a span begin and end within it."""
    return all(
        draft.began_at <= child.began_at <= child.ended_at <= draft.ended_at and is_inside(child)
        for child in draft.children
    )
