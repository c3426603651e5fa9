"""The context of each request, and what is recorded of it: its metrics, its trace and its line in the log."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.types import Scope, Send

from vecmill.requests import Priority
from vecmill_server.base.error_responses import ErrorResponse
from vecmill_server.base.headers import HeaderIndex, HeaderList
from vecmill_server.http1.request_cycle import HEAD_AT, write_lines
from vecmill_server.service.drain import Drain
from vecmill_server.telemetry.logs import ACCESS_LOG
from vecmill_server.telemetry.metrics.definitions import NO_ROUTE
from vecmill_server.telemetry.metrics.server_metrics import CLIENT_GONE_STATUS, ServerMetrics
from vecmill_server.telemetry.tracing.trace import Attributes, RequestTrace, Stage, Tracer

access_logger = logging.getLogger(ACCESS_LOG)

# Requests of probes and scrapers, which would be most of the traces of a quiet server.
PROBE_ROUTES = frozenset({"health", "livez", "readyz"})
UNTRACED_ROUTES = PROBE_ROUTES | {"metrics"}
NOT_READY = 503
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"})

_TRACE_HEADERS = (b"traceparent", b"tracestate")

# The key of the scope of a request that has its context.
CONTEXT = "vecmill.request_context"


@dataclass(slots=True)
class RequestContext:
    """The state of one request, created by the gateway and filled in by the route.

    `started_at` is on the monotonic clock. `sent` has the headers of the request. `status` is 0 until the
    response begins. `reason` is the label of the error in the response, or `None`. `texts` and `tokens` are
    counts for the log. `owner` is the name of the API key, which is empty for keys without a name; `None` if
    the request needs no key. `client` is the name of the client for fair sharing: of its key, otherwise its
    address, if there is one. `cache_owner` is who finds cached embeddings: the holder of the key,
    `None` without a key. `path_priority` and `key_priority` are the priorities in the path and of the API
    key. `is_admin` is true with an admin key. `headers` are for the response, whatever its status. `respond`
    makes the response to an error, and is `None` until the route sets it. `field_names` maps names of fields
    in errors of the library to those of the client. `has_body` is true once the route has read the body.
    `send` is that of middleware between the gateway and the route, `None` without. `trace_id` is for the log,
    `None` unless tracing is on. `trace` is `None` unless the trace is sampled.
    """

    request_id: str
    started_at: float
    drain: Drain
    sent: HeaderIndex
    status: int = 0
    reason: str | None = None
    texts: int = 0
    tokens: int = 0
    owner: str | None = None
    client: str | None = None
    cache_owner: str | None = None
    path_priority: Priority | None = None
    key_priority: Priority | None = None
    is_admin: bool = False
    headers: HeaderList = field(default_factory=list)
    respond: Callable[[BaseException], ErrorResponse] | None = None
    field_names: Mapping[str, str] | None = None
    has_body: bool = False
    send: Send | None = None
    trace_id: str | None = None
    trace: RequestTrace | None = None

    def begin_response(self, status: int) -> bytes:
        """Note that the response begins, and return the lines of the headers that every response has.

        If the `drain` has begun, the connection is to be closed: the next request goes to another process.
        """
        self.status = status
        if self.trace is not None:
            self.trace.enter(Stage.WRITE_RESPONSE)
        id_bytes = self.request_id.encode("ascii")
        lines = b"x-request-id: %b\r\nrequest-id: %b\r\n" % (id_bytes, id_bytes)
        return lines + write_lines(self.headers) if self.headers else lines

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids of the request for its log lines."""
        ids = {"request_id": self.request_id}
        return ids if self.trace_id is None else {**ids, "trace_id": self.trace_id}

    @classmethod
    def of(cls, scope: Scope) -> "RequestContext":
        """Return the context of the request with this scope."""
        context: RequestContext = scope[CONTEXT]
        return context


class RequestRecords:
    """The records of the requests of a server. `writes_log` adds a line for each to the access log."""

    def __init__(self, metrics: ServerMetrics, tracer: Tracer | None, *, writes_log: bool) -> None:
        self._metrics = metrics
        self._tracer = tracer
        self._writes_log = writes_log

    def begin_trace(self, scope: Scope, context: RequestContext) -> None:
        """Begin the trace of a request. Tracing must be on."""
        assert self._tracer is not None
        # The specification of traceparent and tracestate: several traceparent headers are invalid, and
        # several tracestate headers are one list.
        found: dict[str, list[str]] = {"traceparent": [], "tracestate": []}
        for name, value in scope["headers"]:
            if name in _TRACE_HEADERS:
                found[name.decode()].append(value.decode("latin-1"))
        headers = {}
        if len(found["traceparent"]) == 1:
            headers = {name: ",".join(values) for name, values in found.items() if values}
        trace = self._tracer.begin(scope["method"], headers, scope.get(HEAD_AT, context.started_at))
        context.trace_id = trace.trace_id
        if trace.is_sampled:
            context.trace = trace

    def end(self, scope: Scope, context: RequestContext, ended_at: float) -> None:
        """Count a request that has ended, send its spans and write its line."""
        route = scope.get("route")
        name = NO_ROUTE if route is None else route.name
        status = context.status or CLIENT_GONE_STATUS
        duration_s = ended_at - context.started_at
        trace = None if name in UNTRACED_ROUTES else context.trace
        self._metrics.request_done(name, status, duration_s, None if trace is None else trace.exemplar)
        if trace is not None and self._tracer is not None:
            path = None if route is None else route.path
            self._tracer.end_request(trace, path, _describe(scope, context, path), ended_at)
        if context.reason is not None:
            self._metrics.error_answered(context.reason)
        # Whoever waits for a server that loads asks several times a second.
        is_waiting = status == NOT_READY and name in PROBE_ROUTES
        level = logging.DEBUG if is_waiting else logging.INFO
        if self._writes_log and access_logger.isEnabledFor(level):
            _write_access(level, scope, name, status, duration_s, context)


def _describe(scope: Scope, context: RequestContext, path: str | None) -> Attributes:
    """Return the attributes of the span of a request, none of which has a text or a key.

    The path is that of the route, since a client may send anything in a path or a query.
    """
    attributes: dict[str, str | int | float | bool] = {
        "http.request.method": scope["method"] if scope["method"] in METHODS else "_OTHER",
        "url.scheme": "http",
        "network.protocol.version": scope["http_version"],
        "vecmill.request_id": context.request_id,
    }
    if path is not None:
        attributes["http.route"] = path
        if "{" not in path:
            attributes["url.path"] = path
    if context.status:
        attributes["http.response.status_code"] = context.status
    if not context.status:
        attributes["error.type"] = "client_gone"
    elif context.reason is not None:
        attributes["error.type"] = context.reason
    if context.texts:
        attributes["vecmill.texts"] = context.texts
        attributes["gen_ai.usage.input_tokens"] = context.tokens
    return attributes


def _write_access(
    level: int, scope: Scope, route: str, status: int, duration_s: float, context: RequestContext
) -> None:
    address = scope.get("client")  # absent on a Unix socket
    # As `Logger.info`, but without the search for the calling line of source.
    fields = {
        **context.log_fields,
        "client": None if address is None else address[0],
        "method": scope["method"],
        "route": route,
        "status": status,
        "duration_ms": round(duration_s * 1000, 3),
        "texts": context.texts,
        "tokens": context.tokens,
        "reason": context.reason,
    }
    record = access_logger.makeRecord(
        access_logger.name, level, __file__, 0, "request", (), None, extra=fields
    )
    access_logger.handle(record)
