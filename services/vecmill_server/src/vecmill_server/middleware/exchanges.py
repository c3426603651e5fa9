"""The outermost layer: gives each request its id, and tells metrics and the log how it ended."""

import itertools
import logging
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vecmill.clock import Clock, monotonic
from vecmill_server.drain import Drain
from vecmill_server.exchange import Exchange, header
from vecmill_server.metrics import CLIENT_GONE_STATUS, ServerMetrics

access_logger = logging.getLogger("vecmill.access")

# What may be echoed into logs and headers.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

NO_ROUTE = "none"


class Exchanges:
    """Wraps the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        drain: Drain,
        *,
        access_log: bool,
        clock: Clock = monotonic,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._drain = drain
        self._access_log = access_log
        self._clock = clock
        # Unique among processes by its start, within this one by its end; random bytes for each
        # request would be a system call for each.
        self._id_prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(self._request_id(scope), self._clock())
        exchange.attach(scope)
        scope["app"] = self  # with it, Starlette's routes raise instead of answering in plain text
        request_id = exchange.request_id.encode("ascii")
        id_headers = ((b"x-request-id", request_id), (b"request-id", request_id))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"].extend(id_headers)
                if not self._drain.is_serving:  # the next request should find another process
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._finish(scope, exchange)

    def _finish(self, scope: Scope, exchange: Exchange) -> None:
        route = scope.get("route")
        name = NO_ROUTE if route is None else route.name
        status = exchange.status or CLIENT_GONE_STATUS
        duration_s = self._clock() - exchange.started_at
        self._metrics.request_done(name, status, duration_s)
        if exchange.reason is not None:
            self._metrics.error_answered(exchange.reason)
        if self._access_log and access_logger.isEnabledFor(logging.INFO):
            _write_access(scope["method"], name, status, duration_s, exchange)

    def _request_id(self, scope: Scope) -> str:
        sent = header(scope, b"x-request-id")
        if sent is not None and _REQUEST_ID.fullmatch(sent):
            return sent.decode("ascii")
        return f"{self._id_prefix}-{next(self._numbers):x}"


def _write_access(method: str, route: str, status: int, duration_s: float, exchange: Exchange) -> None:
    # What `Logger.info` does, without looking up which line of source called it.
    fields = {
        "request_id": exchange.request_id,
        "method": method,
        "route": route,
        "status": status,
        "duration_ms": round(duration_s * 1000, 3),
        "texts": exchange.texts,
        "tokens": exchange.tokens,
        "reason": exchange.reason,
    }
    level = logging.INFO
    record = access_logger.makeRecord(
        access_logger.name, level, __file__, 0, "request", (), None, extra=fields
    )
    access_logger.handle(record)
