"""The traces of the lines of batches of the Batch API, one trace for each line."""

from collections.abc import Iterator
from contextlib import contextmanager

from vecmill.errors import VecmillError
from vecmill.values.clock import monotonic
from vecmill_server.base.error_responses import spec_of
from vecmill_server.telemetry.tracing.trace import RequestTrace, Tracer


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
