"""The tracer: it samples traces, makes OpenTelemetry's spans, and sends them to a collector.

At the start of a request, its ids are made and the sampler is asked. Then only times are recorded. All spans
are made together when a request or a batch has ended, as finished spans. OpenTelemetry's own tracer would
make each span at its start, which takes several times as long.

A thread sends the spans by OTLP over HTTP. Its queue has a limit (`OTEL_BSP_MAX_QUEUE_SIZE`). If the
collector is slow, dead or hangs, the queue fills up and spans are dropped: requests never wait for the
collector. The log tells once that the collector does not take spans, and once that it takes them again. While
the queue is full, it says so once a minute.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from vecmill.errors import InvalidConfig
from vecmill.values.clock import monotonic
from vecmill.values.observer import BatchTimeline
from vecmill_server import __version__
from vecmill_server.telemetry.tracing.layout import SpanDraft, describe_batch, lay_out_batch, lay_out_request
from vecmill_server.telemetry.tracing.trace import Attributes, RequestTrace, Stage

logger = logging.getLogger(__name__)

# The time for the last spans when the server stops. The time of a stop has room for it (docs/operations.md).
FLUSH_S = 3.0

# How often the two clocks are read together; a microsecond in all.
CLOCK_READINGS = 3

# These loggers report every failed attempt. The exporter's tells the reason, and the queue's tells once a
# minute that it is full.
_CHATTY = "opentelemetry.exporter"
_EXPORTER = OTLPSpanExporter.__module__
_QUEUE = "opentelemetry.sdk._shared_internal"


class FailureReason(logging.Handler):
    """The handler that keeps the last message of a logger instead of writing it."""

    text = "the reason is unknown"

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.text = record.getMessage()


class FullQueue(logging.Handler):
    """The handler that words the queue's warning about dropped spans, and writes nothing else."""

    def emit(self, record: logging.LogRecord) -> None:
        """Report a full queue."""
        if record.levelno == logging.WARNING:
            logger.warning(
                "more spans than the collector takes: the oldest of the queue are dropped; see "
                "OTEL_BSP_MAX_QUEUE_SIZE"
            )


class LoggedExporter(SpanExporter):
    """An exporter that logs the first of several failures, and the first success after a failure."""

    def __init__(self, exporter: SpanExporter, reason: FailureReason) -> None:
        """`reason` is the handler of the logger to which `exporter` tells why it failed."""
        self.has_failed = False
        self._reason = reason
        self._exporter = exporter
        self._dropped = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans. Never raises an error."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            self._reason.text = f"{type(error).__name__}: {error}"
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            if self.has_failed:
                logger.info("the collector takes spans again; at least %d were dropped", self._dropped)
            self.has_failed, self._dropped = False, 0
            return result
        self._dropped += len(spans)
        if not self.has_failed:
            logger.warning(
                "the collector (OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318) does not take "
                "spans; they are dropped until it does: %s",
                self._reason.text,
            )
        self.has_failed = True
        return result

    def shutdown(self) -> None:
        """End the attempts to send."""
        self._exporter.shutdown()


class SpanSender:
    """The queue of spans, and the thread that sends them."""

    def __init__(self, exporter: SpanExporter | None = None, *, flush_s: float = FLUSH_S) -> None:
        """`exporter` is by default the one that OpenTelemetry's environment variables describe."""
        self._flush_s = flush_s
        logging.getLogger(_CHATTY).setLevel(logging.CRITICAL)
        reason = FailureReason()
        # Handlers, because a record passes all of them, also those of another sender in this process.
        self._handlers: dict[str, logging.Handler] = {_EXPORTER: reason, _QUEUE: FullQueue()}
        for name, own in self._handlers.items():
            source = logging.getLogger(name)
            source.setLevel(logging.WARNING)
            source.addHandler(own)
            source.propagate = False
        self._exporter = LoggedExporter(exporter or OTLPSpanExporter(), reason)
        self._processor = BatchSpanProcessor(self._exporter)

    def send(self, spans: Iterable[ReadableSpan]) -> None:
        """Put spans into the queue. Drops the oldest spans if the queue is full."""
        for span in spans:
            self._processor.on_end(span)

    async def close(self) -> None:
        """Send all spans that wait, for at most `flush_s`.

        If the last attempt to send has failed, spans that wait are dropped at once.
        """
        loop = asyncio.get_running_loop()
        is_done = asyncio.Event()

        def flush() -> None:
            if self._exporter.has_failed:
                self._exporter.shutdown()  # ends the pauses between attempts
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the event loop is closed, and nobody waits
                loop.call_soon_threadsafe(is_done.set)

        # A daemon, so that the process does not wait for a collector that hangs.
        threading.Thread(target=flush, name="vecmill-spans", daemon=True).start()
        try:
            async with asyncio.timeout(self._flush_s):
                await is_done.wait()
        except TimeoutError:
            logger.warning("the last spans were not sent within %g seconds", self._flush_s)
        for name, own in self._handlers.items():
            source = logging.getLogger(name)
            source.removeHandler(own)
            source.propagate = not any(isinstance(each, type(own)) for each in source.handlers)


# OpenTelemetry's default limit on the links of a span.
MAX_LINKS = 128

_SCOPE = InstrumentationScope("vecmill", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED = TraceFlags(TraceFlags.DEFAULT)
_OK = Status(StatusCode.UNSET)
_FAILED = Status(StatusCode.ERROR)
_EMPTY = Context()


class OpenTelemetryTracer:
    """The tracer of one server; see the module docstring."""

    def __init__(self, sampler: Sampler, resource: Resource, sender: SpanSender) -> None:
        self._sampler = sampler
        self._resource = resource
        self._sender = sender
        self._ids = RandomIdGenerator()
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, headers: Mapping[str, str], began_at: float) -> RequestTrace:
        """Begin a trace, or continue the trace that the headers `traceparent` and `tracestate` name."""
        above = self._propagator.extract(headers, _EMPTY) if headers else _EMPTY
        parent: SpanContext | None = get_current_span(above).get_span_context() if headers else None
        if parent is not None and not parent.is_valid:
            parent = None
        trace_id = self._ids.generate_trace_id() if parent is None else parent.trace_id
        found = self._sampler.should_sample(above, trace_id, name, SpanKind.SERVER)
        is_sampled = found.decision.is_sampled()  # type: ignore[no-untyped-call]
        context = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=_SAMPLED if is_sampled else _NOT_SAMPLED,
            trace_state=found.trace_state,
        )
        return RequestTrace(context, parent, began_at, is_sampled=is_sampled)

    def end_request(self, trace: RequestTrace, route: str | None, attributes: Attributes, at: float) -> None:
        """Send the spans of a request. `route` is the path of its route in the route table."""
        method = attributes["http.request.method"]
        name = f"{method}" if route is None else f"{method} {route}"
        self._end(trace, name, SpanKind.SERVER, attributes, at)

    def end_line(self, trace: RequestTrace, attributes: Attributes) -> None:
        """Send the spans of a line of a batch of the Batch API."""
        trace.begin(Stage.ANSWER)
        self._end(trace, "batch_line", SpanKind.INTERNAL, attributes, monotonic())

    def end_batch(self, model: str, batch: BatchTimeline) -> None:
        """Send the spans of a batch of texts, if a request with a text in it is sampled."""
        if batch.runs and batch.ended_at is not None:
            try:
                self._send_batch(model, batch, batch.ended_at)
            except Exception:
                logger.exception("the spans of a batch could not be made")

    async def close(self) -> None:
        """Send all spans that wait, for a limited time."""
        await self._sender.close()

    def _end(
        self, trace: RequestTrace, name: str, kind: SpanKind, attributes: Attributes, ended_at: float
    ) -> None:
        try:
            drafts = lay_out_request(trace, ended_at)
            root = SpanDraft(
                name,
                trace.stages[0][1],
                ended_at,
                {**attributes, **trace.attributes},
                drafts,
                has_failed=attributes.get("http.response.status_code", 0) >= 500,  # type: ignore[operator]
            )
            writer = _Writer(self._resource, self._ids, attributes.get("error.type"))
            self._sender.send(writer.write(root, trace.context, trace.parent, kind))
        except Exception:  # the request has its response
            logger.exception("the spans of a request could not be made")

    def _send_batch(self, model: str, batch: BatchTimeline, ended_at: float) -> None:
        requests = dict.fromkeys(run.timeline for run in batch.runs)
        traces = [trace for trace in requests if isinstance(trace, RequestTrace)]
        root = SpanDraft(
            "batch",
            batch.taken_at,
            ended_at,
            {
                **describe_batch(batch),
                "gen_ai.request.model": model,
                "vecmill.batch.traced_requests": len(traces),
                "vecmill.batch.failed_texts": batch.failed_texts,
            },
            lay_out_batch(batch, ended_at),
            has_failed=batch.failed_texts > 0,
        )
        links = [Link(trace.context) for trace in traces[:MAX_LINKS]]
        writer = _Writer(self._resource, self._ids, None)
        self._sender.send(writer.write(root, batch_context(batch), None, SpanKind.INTERNAL, links))


def make_tracer() -> OpenTelemetryTracer:
    """Return the tracer that OpenTelemetry's environment variables describe. Raises `InvalidConfig`."""
    # The provider reads the variables of the sampler and of the resource. It makes no spans here.
    provider = TracerProvider(shutdown_on_exit=False)
    resource = provider.resource.merge(Resource({"service.version": __version__}))
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "vecmill"}))
    try:
        sender = SpanSender()
    except ValueError as error:  # such as OTEL_BSP_MAX_QUEUE_SIZE below OTEL_BSP_MAX_EXPORT_BATCH_SIZE
        raise InvalidConfig(f"OpenTelemetry refuses a value of its OTEL_ variables: {error}") from error
    return OpenTelemetryTracer(provider.sampler, resource, sender)


def batch_context(batch: BatchTimeline) -> SpanContext:
    """Return the span context of a batch, which follows from its id."""
    return SpanContext(batch.id, batch.id & (2**64 - 1) or 1, is_remote=False, trace_flags=_SAMPLED)


def read_unix_offset_ns() -> int:
    """Return what to add to a monotonic time, as spans have Unix times.

    A thread can lose its processor between the readings of the two clocks. Of a few readings, that in the
    shortest time counts.
    """
    readings = []
    for _ in range(CLOCK_READINGS):
        before, unix, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, unix - (before + after) // 2))
    return min(readings)[1]


class _Writer:
    """The writer of the finished spans of one trace. Spans that failed get the attribute `error_type`."""

    def __init__(self, resource: Resource, ids: RandomIdGenerator, error_type: object) -> None:
        self._resource = resource
        self._ids = ids
        self._error = {} if error_type is None else {"error.type": str(error_type)}
        self._offset_ns = read_unix_offset_ns()

    def write(
        self,
        draft: SpanDraft,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Iterator[ReadableSpan]:
        """Yield the span of `draft`, and all spans inside it."""
        yield ReadableSpan(
            name=draft.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes={**draft.attributes, **self._error} if draft.has_failed else draft.attributes,
            links=links,
            kind=kind,
            status=_FAILED if draft.has_failed else _OK,
            start_time=self._unix_ns(draft.began_at),
            end_time=self._unix_ns(draft.ended_at),
            instrumentation_scope=_SCOPE,
        )
        for child in draft.children:
            own = SpanContext(
                context.trace_id,
                self._ids.generate_span_id(),
                is_remote=False,
                trace_flags=_SAMPLED,
                trace_state=context.trace_state,
            )
            batch = child.batch
            # The spans of a batch whose lane was lost are not sent.
            batches = () if batch is None or batch.ended_at is None else (Link(batch_context(batch)),)
            yield from self.write(child, own, context, links=batches)

    def _unix_ns(self, at: float) -> int:
        return round(at * 1e9) + self._offset_ns
