"""The sending of spans to a collector, by OTLP over HTTP, in a thread of its own.

The queue of the thread has a limit (`OTEL_BSP_MAX_QUEUE_SIZE`). If the collector is slow, dead or hangs, the
queue fills up and spans are dropped: requests never wait for the collector. The log tells once that the
collector does not take spans, and once that it takes them again. While the queue is full, it says so once a
minute.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

logger = logging.getLogger(__name__)

# The time for the last spans when the server stops. The time of a stop has room for it (docs/lifecycle.md).
FLUSH_S = 3.0

# These loggers report every failed attempt. The exporter's tells the reason, and the queue's tells once a
# minute that it is full.
_CHATTY = "opentelemetry.exporter"
_EXPORTER = OTLPSpanExporter.__module__
_QUEUE = "opentelemetry.sdk._shared_internal"


class FailureReason(logging.Filter):
    """The filter that keeps the last message of a logger instead of writing it."""

    text = "the reason is unknown"

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the message."""
        self.text = record.getMessage()
        return False


class FullQueue(logging.Filter):
    """The filter that words the queue's warning about dropped spans, and writes nothing else."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Report a full queue."""
        if record.levelno == logging.WARNING:
            logger.warning(
                "more spans than the collector takes: the oldest of the queue are dropped; see "
                "OTEL_BSP_MAX_QUEUE_SIZE"
            )
        return False


class LoggedExporter(SpanExporter):
    """An exporter that logs the first of several failures, and the first success after a failure."""

    def __init__(self, exporter: SpanExporter, reason: FailureReason) -> None:
        """`reason` is the filter of the logger to which `exporter` tells why it failed."""
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
        self._filters: dict[str, logging.Filter] = {_EXPORTER: reason, _QUEUE: FullQueue()}
        for name, own in self._filters.items():
            logging.getLogger(name).setLevel(logging.WARNING)
            logging.getLogger(name).addFilter(own)
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
        for name, own in self._filters.items():
            logging.getLogger(name).removeFilter(own)
