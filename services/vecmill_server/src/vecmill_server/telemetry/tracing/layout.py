"""The layout of the spans of one request, from its recorded times. Pure.

    read_body  parse  tokenise  queue  batch  deliver  build_response  write_response
                                       └ engine

The spans follow each other without a gap, so together they are as long as the request. A request with texts
in several batches has a span `compute` with the batches inside. A request that a dialect composes of several
has a span `answer` with a span `run` for each of them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vecmill.values.observer import BatchTimeline, RunTimeline
from vecmill_server.telemetry.tracing.trace import Attributes, RequestTrace, Stage

# A request of thousands of texts has one span for each of so many batches.
MAX_BATCHES = 64

_NONE: Attributes = {}


class SpanDraft(NamedTuple):
    """A span without ids. Times are on the monotonic clock, in seconds. `batch` is linked to the span."""

    name: str
    began_at: float
    ended_at: float
    attributes: Attributes = _NONE
    children: Sequence["SpanDraft"] = ()
    batch: BatchTimeline | None = None
    has_failed: bool = False


def lay_out_request(trace: RequestTrace, ended_at: float) -> list[SpanDraft]:
    """Return the spans inside the span of a request."""
    drafts: list[SpanDraft] = []
    for (name, began_at), (_, until) in pairwise([*trace.stages, ("", ended_at)]):
        if name == Stage.ANSWER and trace.runs:
            drafts += _lay_out_answer(trace.runs, began_at, until)
        else:
            drafts.append(SpanDraft(name, began_at, until))
    return drafts


def lay_out_batch(batch: BatchTimeline, ended_at: float) -> list[SpanDraft]:
    """Return the spans inside the span of a batch: its calls of the engine."""
    return _lay_out_calls(batch, batch.taken_at, ended_at)


def describe_batch(batch: BatchTimeline) -> dict[str, str | int | float | bool]:
    """Return the attributes of a batch."""
    return {
        "vecmill.batch.id": batch_id(batch),
        "vecmill.batch.texts": batch.texts,
        "vecmill.batch.tokens": batch.tokens,
        "vecmill.batch.cores": batch.width,
        "vecmill.batch.lane": batch.lane,
    }


def batch_id(batch: BatchTimeline) -> str:
    """Return the id of a batch, which is the id of its trace: 32 hexadecimal digits."""
    return f"{batch.id:032x}"


def _lay_out_answer(runs: Sequence[RunTimeline], began_at: float, until: float) -> list[SpanDraft]:
    if len(runs) == 1:
        return _lay_out_run(runs[0], began_at, until)
    ends = [run.resumed_at or until for run in runs]
    children = [
        SpanDraft("run", run.began_at, end, children=_lay_out_run(run, run.began_at, end))
        for run, end in zip(runs, ends, strict=True)
    ]
    answered_at = min(until, max(ends))
    answer = SpanDraft(Stage.ANSWER, began_at, answered_at, children=children)
    return [answer, *_rest(answered_at, until)]


def _lay_out_run(run: RunTimeline, began_at: float, until: float) -> list[SpanDraft]:
    """Return the spans from `began_at` to `until`. A run that failed lacks the spans after its failure."""
    if run.tokenized_at is None:
        return [_tokenise(run, began_at, until, has_failed=True)]
    drafts = [_tokenise(run, began_at, run.tokenized_at)]
    at = run.tokenized_at
    if run.finished_at is not None:  # else the queue has refused the request
        queued_until = run.finished_at if run.started_at is None else run.started_at
        drafts.append(_queue(run, at, queued_until))
        at = queued_until
        if run.started_at is not None:
            drafts.append(_compute(run, at, run.finished_at))
            at = run.finished_at
        if run.resumed_at is not None:
            drafts.append(SpanDraft("deliver", at, run.resumed_at))
            at = run.resumed_at
    return [*drafts, *_rest(at, until)]


def _rest(at: float, until: float) -> list[SpanDraft]:
    return [SpanDraft("build_response", at, until)] if at < until else []


def _tokenise(run: RunTimeline, began_at: float, until: float, *, has_failed: bool = False) -> SpanDraft:
    attributes = {"vecmill.texts": run.texts, "vecmill.tokens": run.tokens}
    return SpanDraft("tokenise", began_at, until, attributes, has_failed=has_failed)


def _queue(run: RunTimeline, began_at: float, until: float) -> SpanDraft:
    attributes: dict[str, str | int | float | bool] = {"vecmill.joined_texts": run.joined_texts}
    first = next(iter(run.batches), None)
    if first is not None:
        attributes["vecmill.batch.id"] = batch_id(first)
    return SpanDraft("queue", began_at, until, attributes, has_failed=run.started_at is None)


def _compute(run: RunTimeline, began_at: float, until: float) -> SpanDraft:
    batches = [
        _share_of_batch(batch, texts, began_at, until)
        for batch, texts in list(run.batches.items())[:MAX_BATCHES]
    ]
    if len(batches) == 1:  # the batch may have begun before the request joined it
        return batches[0]._replace(began_at=began_at, ended_at=until, has_failed=run.has_failed)
    attributes = {"vecmill.batches": len(run.batches)}
    return SpanDraft("compute", began_at, until, attributes, batches, has_failed=run.has_failed)


def _share_of_batch(batch: BatchTimeline, texts: int, began_at: float, until: float) -> SpanDraft:
    """Return the span of the time that a request spends in a batch."""
    begins = max(began_at, batch.taken_at)
    ends = until if batch.ended_at is None else min(until, batch.ended_at)
    attributes = {**describe_batch(batch), "vecmill.texts": texts}
    return SpanDraft("batch", begins, ends, attributes, _lay_out_calls(batch, begins, ends), batch)


def _lay_out_calls(batch: BatchTimeline, began_at: float, until: float) -> list[SpanDraft]:
    return [
        SpanDraft(
            "engine",
            max(began_at, call.began_at),
            min(until, call.ended_at),
            {"vecmill.batch.id": batch_id(batch), "vecmill.texts": call.texts},
        )
        for call in tuple(batch.calls)
        if call.ended_at > began_at and call.began_at < until
    ]
