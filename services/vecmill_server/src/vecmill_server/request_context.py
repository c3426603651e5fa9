"""The state of one HTTP request that middleware and routes share, and the access to its headers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from vecmill.requests import Priority
from vecmill.results import Timings
from vecmill_server.tracing.trace import RequestTrace

HeaderList = list[tuple[bytes, bytes]]

_KEY = "vecmill.request_context"

# Set by `protocol`: a function that sets the number of seconds in which the client must send the body.
BODY_TIME = "vecmill.body_time"
# Set by `request_cycle`: `watch_client` of the cycle.
CLIENT_WATCH = "vecmill.client_watch"


@dataclass(slots=True)
class RequestContext:
    """The state of one request, created by `middleware.request_contexts` and filled in by the route.

    `started_at` is on the monotonic clock. `status` is 0 until the response begins. `reason` is the label of
    the error in the response, or `None`. `texts` and `tokens` are counts for the log. `owner` is the name of
    the API key, which is empty for keys without a name; `None` if the request needs no key. `client` tells
    holders of keys apart, for fair sharing. `path_priority` and `key_priority` are the priorities in the path
    and of the API key (`request_priority`). `headers` are for the response, whatever its status. `trace_id`
    is for the log, `None` unless tracing is on. `trace` is `None` unless the trace is sampled.
    """

    request_id: str
    started_at: float
    status: int = 0
    reason: str | None = None
    texts: int = 0
    tokens: int = 0
    owner: str | None = None
    client: str | None = None
    path_priority: Priority | None = None
    key_priority: Priority | None = None
    headers: HeaderList = field(default_factory=list)
    trace_id: str | None = None
    trace: RequestTrace | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids of the request for its log lines."""
        ids = {"request_id": self.request_id}
        return ids if self.trace_id is None else {**ids, "trace_id": self.trace_id}

    @classmethod
    def of(cls, scope: Scope) -> "RequestContext":
        """Return the context of the request with this scope."""
        context: RequestContext = scope[_KEY]
        return context

    def attach(self, scope: Scope) -> None:
        """Store this context in `scope`, the scope of its request."""
        scope[_KEY] = self


def client_of(scope: Scope) -> str | None:
    """Return the name of the client for fair sharing: of its key, otherwise its address, if there is one."""
    client = RequestContext.of(scope).client
    if client is not None:
        return client
    address = scope.get("client")
    return None if address is None else str(address[0])


def allow_body_time(scope: Scope, seconds: float) -> None:
    """Set the time limit, in seconds, for the client to send the body of this request."""
    allow = scope.get(BODY_TIME)
    if allow is not None:  # absent where the application runs without `protocol`
        allow(seconds)


def watch_client(scope: Scope, receive: Receive, on_leave: Callable[[], None]) -> Callable[[], object]:
    """Call `on_leave` if the client disconnects, until the returned function is called.

    The body must have been read.
    """
    watch = scope.get(CLIENT_WATCH)
    if watch is not None:
        stop: Callable[[], object] = watch(on_leave)
        return stop

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        on_leave()

    return asyncio.ensure_future(wait()).cancel  # absent where the application runs without `protocol`


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of the first header with this lower-case name, stripped; `None` if it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            stripped: bytes = value.strip()
            return stripped
    return None


def timing_headers(timings: Timings) -> HeaderList:
    """Return `x-compute-time` in seconds and `Server-Timing` in milliseconds."""
    return [(b"x-compute-time", b"%.6f" % timings.inference_s), server_timing(timings)]


def server_timing(timings: Timings) -> tuple[bytes, bytes]:
    """Return the header `Server-Timing`, in milliseconds."""
    parts = (
        ("tokenize", timings.tokenize_s),
        ("queue", timings.queue_s),
        ("inference", timings.inference_s),
        ("total", timings.total_s),
    )
    value = ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in parts)
    return b"server-timing", value.encode("ascii")


async def send_json(send: Send, pieces: Sequence[bytes], extra_headers: HeaderList) -> None:
    """Send a response with status 200. `pieces` together are the body."""
    length = sum(map(len, pieces))
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % length),
            *extra_headers,
        ],
    }
    await send(start)
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": index < last})
