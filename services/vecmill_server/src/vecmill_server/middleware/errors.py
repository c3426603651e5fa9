"""Turns whatever the layers inside raise into the response that `problems` has for it."""

import logging
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.errors import VecmillError
from vecmill_server.bodies import BodyLimits, discard_body
from vecmill_server.errors import BodyTooLarge, ClientGone, MethodNotAllowed, RequestTimedOut, UnknownRoute
from vecmill_server.exchange import Exchange, header
from vecmill_server.problems import ProblemResponse, problem_response

logger = logging.getLogger(__name__)


class Errors:
    """Answers every exception; logs those that nobody foresaw, with the request's id."""

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
            await self._answer(_from_starlette(error, scope), scope, receive, send)
        except Exception as error:
            exchange = Exchange.of(scope)
            logger.exception("unexpected error", extra={"request_id": exchange.request_id})
            if exchange.status:
                raise  # half an answer is out: the connection has to go
            await self._answer(error, scope, receive, send)

    async def _answer(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        response = problem_response(error)
        Exchange.of(scope).reason = response.reason
        if isinstance(error, RequestTimedOut):
            response.headers.append((b"connection", b"close"))
        if isinstance(error, BodyTooLarge):
            await self._answer_before_body_ends(response, scope, receive, send)
            return
        await _send(response, send, more_body=False)

    async def _answer_before_body_ends(
        self, response: ProblemResponse, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer at once, but close only after the client had a chance to finish sending.

        Closing a socket with unread bytes resets the connection, and the reset can overtake the answer.
        """
        response.headers.append((b"connection", b"close"))
        await _send(response, send, more_body=True)
        if header(scope, b"expect") is None:  # else the client is waiting for us and sends nothing
            await discard_body(receive, self._limits)
        await send({"type": "http.response.body", "body": b""})


async def _send(response: ProblemResponse, send: Send, *, more_body: bool) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": more_body})


def _from_starlette(error: HTTPException, scope: Scope) -> VecmillError:
    if error.status_code == 405:
        # What is raised knows the methods of one route, and others may have the same path.
        routes: Sequence[Route] = scope["router"].routes
        found = [route.methods or () for route in routes if route.matches(scope)[0] is not Match.NONE]
        allowed = tuple(sorted({method for methods in found for method in methods}))
        return MethodNotAllowed(f"This path takes {' or '.join(allowed)} requests only.", allowed=allowed)
    return UnknownRoute("There is nothing at this path. GET /openapi.json lists what there is.")
