"""The middleware that converts exceptions to error responses."""

import logging
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.errors import VecmillError
from vecmill_server.base.error_responses import ErrorResponse, response_at
from vecmill_server.base.errors import (
    BodyTooLarge,
    BuffersFull,
    ClientGone,
    MethodNotAllowed,
    RequestTimedOut,
    UnknownRoute,
)
from vecmill_server.base.headers import header
from vecmill_server.service.bodies import BodyLimits, discard_body
from vecmill_server.telemetry.request_context import RequestContext

logger = logging.getLogger(__name__)


class ErrorHandler:
    """The middleware that answers every exception, and logs unexpected exceptions with the request id."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except ClientGone:
            return
        except VecmillError as error:
            await self._answer(error, scope, receive, send)
        except HTTPException as error:
            await self._answer(from_starlette(error, scope), scope, receive, send)
        except Exception as error:
            context = RequestContext.of(scope)
            logger.exception("unexpected error", extra=context.log_fields)
            if context.status:
                raise  # the response has begun, so the connection must close
            await self._answer(error, scope, receive, send)

    async def _answer(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        response = response_at(scope["path"], error)
        RequestContext.of(scope).reason = response.reason
        if isinstance(error, RequestTimedOut):
            response.headers.append((b"connection", b"close"))
        if isinstance(error, BodyTooLarge | BuffersFull):
            await self._answer_before_body_ends(response, scope, receive, send)
            return
        await _send(response, send, more_body=False)

    async def _answer_before_body_ends(
        self, response: ErrorResponse, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the response at once, but discard the rest of the body before closing.

        Closing a socket with unread bytes resets the connection, so that the response can be lost.
        """
        response.headers.append((b"connection", b"close"))
        await _send(response, send, more_body=True)
        if header(scope, b"expect") is None:  # otherwise the client waits and sends no body
            await discard_body(receive, self._limits)
        await send({"type": "http.response.body", "body": b""})


async def _send(response: ErrorResponse, send: Send, *, more_body: bool) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": more_body})


def from_starlette(error: HTTPException, scope: Scope) -> VecmillError:
    """Return the error for an exception of the router."""
    if error.status_code == 405:
        # The exception lists the methods of one route, but several routes may share the path.
        routes: Sequence[Route] = scope["router"].routes
        found = [route.methods or () for route in routes if route.matches(scope)[0] is not Match.NONE]
        allowed = tuple(sorted({method for methods in found for method in methods}))
        return MethodNotAllowed(f"This path takes {' or '.join(allowed)} requests only.", allowed=allowed)
    return UnknownRoute("No route has this path. GET /openapi.json lists the routes.")
