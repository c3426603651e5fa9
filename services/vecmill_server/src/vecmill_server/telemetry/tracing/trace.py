"""The trace of one request or batch line: its ids, times of stages and attributes. Needs no opentelemetry."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

from vecmill.errors import VecmillError
from vecmill.requests import Embed, EmbedOutputs, EmbedPictures, EmbedSparse, EmbedTokens, Request
from vecmill.values.clock import Clock, monotonic
from vecmill.values.observer import BatchTimeline, RunTimeline, Timeline
from vecmill_server.base.error_responses import spec_of

Attributes = Mapping[str, str | int | float | bool]


# Requests whose computation OpenTelemetry's conventions for generative AI have a name for.
_EMBEDDINGS = (Embed, EmbedPictures, EmbedSparse, EmbedTokens, EmbedOutputs)


class Stage(StrEnum):
    """A stage of a request. The stages follow each other without a gap. Their names are names of spans."""

    HANDLE = "handle"
    READ_BODY = "read_body"
    PARSE = "parse"
    ANSWER = "answer"
    WRITE_RESPONSE = "write_response"


class RequestTrace(Timeline):
    """The trace of one request, or of one line of a batch of the Batch API.

    `context` and `parent` are span contexts of opentelemetry. `parent` is `None` if the client sent none.
    `stages` are names and the times at which the stages began. A trace that is not sampled has no spans.
    """

    def __init__(
        self, context: Any, parent: Any, began_at: float, *, is_sampled: bool, clock: Clock = monotonic
    ) -> None:
        super().__init__()
        self.context = context
        self.parent = parent
        self.is_sampled = is_sampled
        self.stages: list[tuple[str, float]] = [(Stage.HANDLE, began_at)]
        self.attributes: dict[str, str | int | float | bool] = {}
        self._clock = clock

    @property
    def trace_id(self) -> str:
        """The id of the trace, as 32 hexadecimal digits."""
        return f"{self.context.trace_id:032x}"

    @property
    def exemplar(self) -> dict[str, str]:
        """The labels that link a measured value to the span of this request."""
        return {"trace_id": self.trace_id, "span_id": f"{self.context.span_id:016x}"}

    def begin(self, stage: Stage) -> None:
        """Name the first stage, from the head of the request on."""
        self.stages[0] = (stage, self.stages[0][1])

    def enter(self, stage: Stage) -> None:
        """End the current stage, and begin `stage`."""
        self.stages.append((stage, self._clock()))

    def describe(self, request: Request[Any], model: str) -> None:
        """Add the attributes of a computation by the model that is served as `model`."""
        self.attributes["gen_ai.request.model"] = model
        if isinstance(request, _EMBEDDINGS):
            self.attributes["gen_ai.operation.name"] = "embeddings"
            self.attributes["gen_ai.provider.name"] = "vecmill"


def exemplar_of(run: RunTimeline | None) -> dict[str, str] | None:
    """Return the exemplar of the trace that `run` belongs to."""
    if run is None or not isinstance(run.timeline, RequestTrace):
        return None
    return run.timeline.exemplar


class Tracer(Protocol):
    """The maker and sender of spans. Its methods never raise an error and never wait for the collector."""

    def begin(self, name: str, headers: Mapping[str, str], began_at: float) -> RequestTrace:
        """Begin a trace, or continue the trace that the headers `traceparent` and `tracestate` name."""
        ...

    def end_request(self, trace: RequestTrace, route: str | None, attributes: Attributes, at: float) -> None:
        """Send the spans of a request. `route` is the path of its route in the route table."""
        ...

    def end_line(self, trace: RequestTrace, attributes: Attributes) -> None:
        """Send the spans of a line of a batch of the Batch API."""
        ...

    def end_batch(self, model: str, batch: BatchTimeline) -> None:
        """Send the spans of a batch of texts. Called on any thread."""
        ...

    async def close(self) -> None:
        """Send all spans that wait, for a limited time."""
        ...


@contextmanager
def trace_line(tracer: Tracer | None, batch: str, number: int) -> Iterator[RequestTrace | None]:
    """Trace the computation of line `number` of the batch with the id `batch`, if it is sampled."""
    trace = None if tracer is None else tracer.begin("batch_line", {}, monotonic())
    if tracer is None or trace is None or not trace.is_sampled:
        yield None
        return
    attributes: dict[str, str | int | float | bool] = {
        "vecmill.batch_api.batch": batch,
        "vecmill.batch_api.line": number,
    }
    try:
        yield trace
    except VecmillError as error:
        attributes["error.type"] = spec_of(error).reason
        raise
    finally:
        tracer.end_line(trace, attributes)
