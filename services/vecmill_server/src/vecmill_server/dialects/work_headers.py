"""The headers about the work of a request: its times, in two notations, and its counts."""

from typing import Any

from vecmill.requests import Request
from vecmill.results import Result, Timings
from vecmill_server.base.headers import HeaderList

USUAL_NAMES = ("x-compute-time", "server-timing")
TEI_NAMES = (
    "x-compute-type",
    "x-compute-characters",
    "x-compute-tokens",
    "x-compute-time",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
)
ALL_NAMES = (*TEI_NAMES, "server-timing")


def usual_headers(_request: Request[Any], result: Result, _device: str) -> HeaderList:
    """Return `x-compute-time` in seconds and `Server-Timing` in milliseconds."""
    timings = result.timings
    return [(b"x-compute-time", b"%.6f" % timings.inference_s), _server_timing(timings)]


def tei_headers(request: Request[Any], result: Result, device: str) -> HeaderList:
    """Return the headers of Text Embeddings Inference. Times are whole milliseconds."""
    timings = result.timings
    total_ms = b"%d" % round(timings.total_s * 1000)
    return [
        (b"x-compute-type", device.encode("ascii")),
        (b"x-compute-characters", b"%d" % sum(request.sizes)),
        (b"x-compute-tokens", b"%d" % result.token_count),
        (b"x-compute-time", total_ms),
        (b"x-total-time", total_ms),
        (b"x-tokenization-time", b"%d" % round(timings.tokenize_s * 1000)),
        (b"x-queue-time", b"%d" % round(timings.queue_s * 1000)),
        (b"x-inference-time", b"%d" % round(timings.inference_s * 1000)),
    ]


def all_headers(request: Request[Any], result: Result, device: str) -> HeaderList:
    """Return those of Text Embeddings Inference and `Server-Timing`."""
    return [*tei_headers(request, result, device), _server_timing(result.timings)]


def _server_timing(timings: Timings) -> tuple[bytes, bytes]:
    value = b"tokenize;dur=%.3f, queue;dur=%.3f, inference;dur=%.3f, total;dur=%.3f" % (
        timings.tokenize_s * 1000,
        timings.queue_s * 1000,
        timings.inference_s * 1000,
        timings.total_s * 1000,
    )
    return b"server-timing", value
