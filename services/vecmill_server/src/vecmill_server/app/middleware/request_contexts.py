"""The outermost middleware: it creates the context and id of each request, and updates metrics and log."""

import itertools
import logging
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vecmill.values.clock import Clock, monotonic
from vecmill_server.base.headers import header
from vecmill_server.http1.scope_keys import HEAD_AT
from vecmill_server.service.drain import Drain
from vecmill_server.telemetry.logs import ACCESS_LOG
from vecmill_server.telemetry.metrics.definitions import NO_ROUTE
from vecmill_server.telemetry.metrics.server_metrics import CLIENT_GONE_STATUS, ServerMetrics
from vecmill_server.telemetry.request_context import RequestContext
from vecmill_server.telemetry.tracing.trace import Attributes, Stage, Tracer

access_logger = logging.getLogger(ACCESS_LOG)

# The request ids of clients that are copied to logs and headers.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

# Requests of probes and scrapers, which would be most of the traces of a quiet server.
UNTRACED_ROUTES = frozenset({"health", "livez", "readyz", "metrics"})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"})

_TRACE_HEADERS = (b"traceparent", b"tracestate")


class RequestContexts:
    """The middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        drain: Drain,
        *,
        access_log: bool,
        tracer: Tracer | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._drain = drain
        self._access_log = access_log
        self._tracer = tracer
        self._clock = clock
        # The prefix makes ids unique among processes, the number within this process. Random bytes for
        # each request would need a system call each.
        self._id_prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = RequestContext(self._request_id(scope), self._clock())
        context.attach(scope)
        if self._tracer is not None:
            _begin_trace(self._tracer, scope, context)
        scope["app"] = self  # makes Starlette's routes raise instead of answering in plain text
        request_id = context.request_id.encode("ascii")
        id_headers = ((b"x-request-id", request_id), (b"request-id", request_id))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                if context.trace is not None:
                    context.trace.enter(Stage.WRITE_RESPONSE)
                message["headers"].extend((*id_headers, *context.headers))
                if not self._drain.is_serving:  # so that the next request goes to another process
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._finish(scope, context)

    def _finish(self, scope: Scope, context: RequestContext) -> None:
        route = scope.get("route")
        name = NO_ROUTE if route is None else route.name
        status = context.status or CLIENT_GONE_STATUS
        ended_at = self._clock()
        duration_s = ended_at - context.started_at
        trace = None if name in UNTRACED_ROUTES else context.trace
        self._metrics.request_done(name, status, duration_s, None if trace is None else trace.exemplar)
        if trace is not None and self._tracer is not None:
            path = None if route is None else route.path
            self._tracer.end_request(trace, path, _describe(scope, context, path), ended_at)
        if context.reason is not None:
            self._metrics.error_answered(context.reason)
        if self._access_log and access_logger.isEnabledFor(logging.INFO):
            _write_access(scope, name, status, duration_s, context)

    def _request_id(self, scope: Scope) -> str:
        sent = header(scope, b"x-request-id")
        if sent is not None and _REQUEST_ID.fullmatch(sent):
            return sent.decode("ascii")
        return f"{self._id_prefix}-{next(self._numbers):x}"


def _begin_trace(tracer: Tracer, scope: Scope, context: RequestContext) -> None:
    # The specification of traceparent and tracestate: several traceparent headers are invalid, and several
    # tracestate headers are one list.
    found: dict[str, list[str]] = {"traceparent": [], "tracestate": []}
    for name, value in scope["headers"]:
        if name in _TRACE_HEADERS:
            found[name.decode()].append(value.decode("latin-1"))
    headers = {}
    if len(found["traceparent"]) == 1:
        headers = {name: ",".join(values) for name, values in found.items() if values}
    trace = tracer.begin(scope["method"], headers, scope.get(HEAD_AT, context.started_at))
    context.trace_id = trace.trace_id
    if trace.is_sampled:
        context.trace = trace


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


def _write_access(scope: Scope, route: str, status: int, duration_s: float, context: RequestContext) -> None:
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
    level = logging.INFO
    record = access_logger.makeRecord(
        access_logger.name, level, __file__, 0, "request", (), None, extra=fields
    )
    access_logger.handle(record)
