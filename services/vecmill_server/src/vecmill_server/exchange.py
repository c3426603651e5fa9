"""One request and its answer, as the middleware and the routes share it."""

from dataclasses import dataclass
from typing import Any

from starlette.types import Scope, Send

from vecmill.types import Timings

HeaderList = list[tuple[bytes, bytes]]

_KEY = "vecmill.exchange"

# Set by `protocol`: a function that gives the client so many seconds to send the body.
BODY_TIME = "vecmill.body_time"


@dataclass(slots=True)
class Exchange:
    """Set by `middleware.exchanges`, filled in by whoever answers.

    `started_at` is on the monotonic clock. `status` is 0 until the answer begins; `reason` names the error
    that it tells, if it does. `texts` and `tokens` are for the log.
    """

    request_id: str
    started_at: float
    status: int = 0
    reason: str | None = None
    texts: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, scope: Scope) -> "Exchange":
        """The exchange that `scope` belongs to."""
        exchange: Exchange = scope[_KEY]
        return exchange

    def attach(self, scope: Scope) -> None:
        """Let `Exchange.of(scope)` find this one."""
        scope[_KEY] = self


def allow_body_time(scope: Scope, seconds: float) -> None:
    """Let the body of this request take longer than bodies may."""
    allow = scope.get(BODY_TIME)
    if allow is not None:  # there is none where the application is called without our protocol
        allow(seconds)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of the first header of that name (lower case), stripped."""
    for key, value in scope["headers"]:
        if key == name:
            stripped: bytes = value.strip()
            return stripped
    return None


def timing_headers(timings: Timings) -> HeaderList:
    """`x-compute-time` in seconds, and `Server-Timing` in milliseconds."""
    parts = (
        ("tokenize", timings.tokenize_s),
        ("queue", timings.queue_s),
        ("inference", timings.inference_s),
        ("total", timings.total_s),
    )
    server_timing = ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in parts)
    return [
        (b"x-compute-time", b"%.6f" % timings.inference_s),
        (b"server-timing", server_timing.encode("ascii")),
    ]


async def send_json(send: Send, body: bytes, extra_headers: HeaderList) -> None:
    """Answer 200 with `body`."""
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *extra_headers,
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
