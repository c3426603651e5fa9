"""The gateway: what every request passes on its way to a route, in this order, and what its errors become.

1. Its context is made, with its id; its metrics, its trace and its line in the log are written in the end
   (`request_record`).
2. With `--cors-origin`, a layer (`cors`) answers preflights and adds headers for browsers.
3. Its path gets the form of the route table (`request_options`).
4. It must have a key, except on public paths (`service.api_keys`).
5. Without a key, it must not come from a foreign web page (`origins`).
6. It goes to its route: by its exact path, or else by the first pattern that matches.

An error in any of these becomes a response here, and nowhere else. A route that has its own form of errors
puts the function that writes them in `RequestContext.respond`.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vecmill.errors import RequestError, VecmillError
from vecmill.hardware.memory import return_freed_memory
from vecmill.values.clock import Clock, monotonic
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.app.browser_page import BrowserPage, wants_page
from vecmill_server.app.client_routes import find_refusal
from vecmill_server.app.cors import CorsLayer
from vecmill_server.app.openapi.examples import examples_of
from vecmill_server.app.origins import OriginRules
from vecmill_server.app.request_options import is_final, read_path, read_request_id
from vecmill_server.app.request_record import CONTEXT, RequestContext, RequestRecords
from vecmill_server.base.error_responses import ErrorResponse, error_response, message_of, response_at
from vecmill_server.base.errors import (
    BodyTooLarge,
    BuffersFull,
    ClientGone,
    InvalidKey,
    MethodNotAllowed,
    RequestTimedOut,
    UnknownRoute,
)
from vecmill_server.base.headers import HEADER_INDEX, HeaderIndex, index_headers
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.http1.request_cycle import split_lines
from vecmill_server.service.api_keys import ApiKeys, KeyCheck
from vecmill_server.service.bodies import BodyLimits, discard_body
from vecmill_server.service.drain import Phase
from vecmill_server.service.service import Service

logger = logging.getLogger(__name__)

EXPOSED_HEADERS = (
    "x-request-id",
    "request-id",
    "x-compute-time",
    "server-timing",
    "x-truncated",
    "x-space",
    "x-space-exact",
    "x-prompt-name",
    "x-truncated-inputs",
    "x-cached-inputs",
    "x-unknown-fields",
    "metadata",
    "retry-after",
    "retry-after-ms",
)
# The errors that a browser which opens an address gets as a page.
_WITH_PAGE = (InvalidKey, UnknownRoute, MethodNotAllowed)
# The headers of an error response that describe its body.
_OF_BODY = frozenset({b"content-type", b"content-length"})
# The hosts that are remembered as known, and the longest of them.
_KNOWN_HOSTS, _LONGEST_HOST = 256, 255


class Gateway:
    """The ASGI application of `routes`; see the module docstring. `clock` gives the times of requests."""

    def __init__(
        self, service: Service, routes: Sequence[Route], origins: OriginRules, clock: Clock = monotonic
    ) -> None:
        settings = service.settings
        self._records = RequestRecords(service.metrics, service.tracer, writes_log=settings.access_log)
        self._is_traced = service.tracer is not None
        self._drain = service.drain
        self._history = service.history
        self._budget = service.budget
        self._clock = clock
        # The prefix makes ids unique among processes, the number within this process. Random bytes for
        # each request would need a system call each.
        self._id_prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._url_prefix = settings.url_prefix
        metrics_keys = ApiKeys(settings.metrics_key) if settings.metrics_key else None
        check = KeyCheck(service.keys, metrics_keys, service.admin_keys)
        self._keys = None if check == KeyCheck(None) else check
        self._origins = origins
        self._is_known_host = lru_cache(_KNOWN_HOSTS)(origins.accepts_host)
        self._routes = routes
        self._router = Router(routes, redirect_slashes=False)
        self._exact = index_routes(routes)
        # By the paths that clients send, for those paths that are in the form of the route table.
        self._as_sent = {
            (method, self._url_prefix + path): route
            for (method, path), route in self._exact.items()
            if is_final(path)
        }
        self._page = BrowserPage(service)
        self._is_model = service.catalog.has_name
        self._inference_routes = routes_by_path()
        self._limits = BodyLimits.of(settings)
        self._cors: ASGIApp | None = None
        if settings.cors_origin:
            self._cors = CorsLayer(self._pass_on, origins.origins, EXPOSED_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        context = self._begin(scope)

        def send_in_context(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] += split_lines(context.begin_response(message["status"]))
                if context.drain.phase is not Phase.READY:
                    message["headers"].append((b"connection", b"close"))
            return send(message)

        failure: tuple[ErrorResponse, bool] | None = None
        try:
            try:
                app = self._cors or self._find_app(scope)
                await app(scope, receive, send_in_context)
            except ClientGone:
                pass
            except INTERRUPTIONS:
                raise
            except BaseException as error:  # else the client would wait for its response for ever
                failure = self._respond(error, scope)
            # The error is gone by now, and with it the body that its traceback refers to.
            if failure is not None:
                await self._send(*failure, scope, receive, context.send or send_in_context)
        finally:
            self._end(scope, context)

    def _begin(self, scope: Scope) -> RequestContext:
        """Make the context of a request, and begin its trace."""
        sent: HeaderIndex = scope.get(HEADER_INDEX) or index_headers(scope)
        sent_id = sent.get(b"x-request-id")
        request_id = (sent_id and read_request_id(sent_id)) or f"{self._id_prefix}-{next(self._numbers):x}"
        address = scope.get("client")  # absent on a Unix socket
        client = None if address is None else str(address[0])
        context = scope[CONTEXT] = RequestContext(request_id, self._clock(), self._drain, sent, client=client)
        if self._is_traced:
            self._records.begin_trace(scope, context)
        return context

    def _end(self, scope: Scope, context: RequestContext) -> None:
        """Record a request that has ended, and return the memory of large ones to the system."""
        # It refers to the context, so both would stay until the garbage collector finds them.
        context.send = None
        ended_at = self._clock()
        self._records.end(scope, context, ended_at)
        if self._history is not None and ended_at >= self._history.due_at:
            self._history.touch()
        if self._budget.is_return_due:
            self._budget.is_return_due = False
            # It takes milliseconds.
            asyncio.get_running_loop().run_in_executor(None, return_freed_memory)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to its route. An error is then answered through the middleware too."""
        RequestContext.of(scope).send = send
        await self._find_app(scope)(scope, receive, send)

    def _find_app(self, scope: Scope) -> ASGIApp:
        """Return what answers a request that may pass: its route or, for other paths, the router.

        Raises `HttpError`.
        """
        method = scope["method"]
        # With a root path, which other ASGI servers may set, only the router knows the path.
        has_root = bool(scope.get("root_path"))
        route = None if has_root else self._as_sent.get((method, scope["path"]))
        if route is None:
            context = RequestContext.of(scope)
            context.path_priority, scope["path"] = read_path(scope, self._url_prefix)
            route = None if has_root else self._exact.get((method, scope["path"]))
        else:
            scope["path"] = route.path
        self._admit(scope)
        if route is None:
            scope["app"] = self  # makes the router raise instead of answering in plain text
            return self._router
        scope["route"], scope["path_params"] = route, {}
        return route.app

    def _admit(self, scope: Scope) -> None:
        """Check the key or the origin. Raises `HttpError`."""
        context: RequestContext = scope[CONTEXT]
        if self._keys is not None:
            holder = self._keys.find_holder(scope)
            if holder is not None:
                context.owner, context.client = holder.owner, holder.client
                context.key_priority, context.cache_owner = holder.priority, holder.client
                context.is_admin = holder.is_admin
                return
        sent = context.sent
        host, is_plain = sent.get(b"host", b""), b"origin" not in sent and b"sec-fetch-site" not in sent
        if not (is_plain and len(host) <= _LONGEST_HOST and self._is_known_host(host.decode("latin-1"))):
            self._origins.check(scope["method"], scope["headers"])

    def _respond(self, error: BaseException, scope: Scope) -> tuple[ErrorResponse, bool]:
        """Return the response to an error, and whether the client is still sending a body that nobody reads.

        Raises `error` if it is not expected and the response has begun, so that the connection closes.
        """
        context, discards_body = RequestContext.of(scope), False
        if isinstance(error, HTTPException):
            error = self._from_router(error, scope)
        if not isinstance(error, VecmillError):
            logger.exception("unexpected error", extra=context.log_fields)
            if context.status:
                raise error
            response = response_at(scope["path"], error)
        elif isinstance(error, _WITH_PAGE) and wants_page(scope):
            response = self._render_page(error, scope)
        else:
            if isinstance(error, RequestError) and context.field_names is not None:
                error.rename_fields(context.field_names)
            respond = context.respond or partial(response_at, scope["path"])
            response = respond(error)
            discards_body = not context.has_body and isinstance(error, BodyTooLarge | BuffersFull)
            if discards_body or isinstance(error, RequestTimedOut):
                response.headers.append((b"connection", b"close"))
        context.reason = response.reason
        return response, discards_body

    def _from_router(self, error: HTTPException, scope: Scope) -> VecmillError:
        """Return the error for an exception of the router."""
        refusal = find_refusal(scope["method"], scope["path"])
        if refusal is not None:
            RequestContext.of(scope).respond = refusal.respond
            return UnknownRoute(refusal.sentence)
        # The exception lists the methods of one route, but several routes may share the path.
        found = [route.methods or () for route in self._routes_at(scope)] if error.status_code == 405 else []
        if found:
            allowed = tuple(sorted({method for methods in found for method in methods}))
            return MethodNotAllowed(f"This path takes {' or '.join(allowed)} requests only.", allowed=allowed)
        return UnknownRoute("No route has this path. GET /openapi.json lists the routes.")

    def _render_page(self, error: VecmillError, scope: Scope) -> ErrorResponse:
        """Return a page as the response to an error. The status and other headers are those of the error."""
        response = error_response(error)
        headers, body = self._page.render(scope, message_of(error), self._find_example(scope))
        kept = [(name, value) for name, value in response.headers if name not in _OF_BODY]
        return replace(response, headers=[*headers, *kept], body=body)

    def _find_example(self, scope: Scope) -> Mapping[str, Any] | None:
        """Return an example of the body that the path accepts, `None` if it accepts no JSON body."""
        if "path_params" not in scope:  # the request was refused before routing, or no route has its path
            return None
        known = self._inference_routes
        found = (known[route.path] for route in self._routes_at(scope) if route.path in known)
        return next((example for route in found for example in examples_of(route).values()), None)

    def _routes_at(self, scope: Scope) -> Iterator[Route]:
        """Return the routes that have the path of a request, whatever its method.

        A path that ends in the name of a model has a route only if there is the model.
        """
        for route in self._routes:
            match, found = route.matches(scope)
            if match is not Match.NONE and (
                not route.path.endswith(":path}") or any(map(self._is_model, found["path_params"].values()))
            ):
                yield route

    async def _send(
        self, response: ErrorResponse, discards_body: bool, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the response to an error. If it `discards_body`, read the rest of the body before the end.

        Closing a socket with unread bytes resets the connection, so that the response can be lost.
        """
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": discards_body})
        if discards_body:
            if b"expect" not in RequestContext.of(scope).sent:  # otherwise the client waits and sends no body
                await discard_body(receive, self._limits)
            await send({"type": "http.response.body", "body": b""})


def index_routes(routes: Sequence[Route]) -> Mapping[tuple[str, str], Route]:
    """Return the routes without parameters by method and path, except where an earlier pattern matches."""
    found: dict[tuple[str, str], Route] = {}
    patterns: list[Route] = []
    for route in routes:
        methods = route.methods or set()
        if route.param_convertors:
            patterns.append(route)
            continue
        earlier = [pattern for pattern in patterns if pattern.path_regex.match(route.path)]
        for method in methods.difference(*(pattern.methods or () for pattern in earlier)):
            found.setdefault((method, route.path), route)
    return found
