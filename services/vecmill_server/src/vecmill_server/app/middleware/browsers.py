"""The middleware that answers a browser which opens a wrong path with a page that helps, in place of JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.errors import VecmillError
from vecmill_server.app.browser_page import BrowserPage, wants_page
from vecmill_server.app.middleware.error_handler import from_starlette
from vecmill_server.base.error_responses import error_response, message_of
from vecmill_server.base.errors import InvalidKey, UnknownRoute
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.openapi.examples import examples_of
from vecmill_server.telemetry.request_context import RequestContext

# The headers of an error response that describe its body.
_OF_BODY = frozenset({b"content-type", b"content-length"})


class Browsers:
    """The middleware that answers unknown paths, wrong methods and missing keys with a page, for browsers.

    The status and the other headers are those of the error response.
    """

    def __init__(self, app: ASGIApp, page: BrowserPage) -> None:
        self._app = app
        self._page = page
        self._inference_routes = routes_by_path()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not wants_page(scope):
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:
            await self._answer(from_starlette(error, scope), scope, send)
        except (InvalidKey, UnknownRoute) as error:
            await self._answer(error, scope, send)

    async def _answer(self, error: VecmillError, scope: Scope, send: Send) -> None:
        response = error_response(error)
        RequestContext.of(scope).reason = response.reason
        headers, body = self._page.render(scope, message_of(error), self._find_example(scope))
        kept = [(name, value) for name, value in response.headers if name not in _OF_BODY]
        await send({"type": "http.response.start", "status": response.status, "headers": [*headers, *kept]})
        await send({"type": "http.response.body", "body": body})

    def _find_example(self, scope: Scope) -> Mapping[str, Any] | None:
        """Return an example of the body that this path accepts, `None` if it accepts no JSON body."""
        if "router" not in scope:  # the request was refused before routing
            return None
        routes: Sequence[Route] = scope["router"].routes
        known = self._inference_routes
        found = (known[route.path] for route in routes if route.path in known and _matches(route, scope))
        examples = (example for route in found for example in examples_of(route).values())
        return next(examples, None)


def _matches(route: Route, scope: Scope) -> bool:
    return route.matches(scope)[0] is not Match.NONE
