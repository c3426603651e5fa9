"""The outermost layer: gives each request its id, and tells metrics and the log how it ended."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(_request_id(scope), self._clock())
        exchange.attach(scope)
        scope["app"] = self  # with it, Starlette's routes raise instead of answering in plain text
        id_header = (b"x-request-id", exchange.request_id.encode("ascii"))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"].append(id_header)
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
            fields = {
                "request_id": exchange.request_id,
                "method": scope["method"],
                "route": name,
                "status": status,
                "duration_ms": round(duration_s * 1000, 3),
                "texts": exchange.texts,
                "tokens": exchange.tokens,
                "reason": exchange.reason,
            }
            access_logger.info("request", extra=fields)


def _request_id(scope: Scope) -> str:
    sent = header(scope, b"x-request-id")
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent.decode("ascii")
    return secrets.token_hex(8)
