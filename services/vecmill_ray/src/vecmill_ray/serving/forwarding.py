"""HTTP requests on their way from the router to a replica, and the run of such a request in the replica."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Scope

from vecmill_server.errors import ModelUnavailable
from vecmill_server.request_context import HeaderList, RequestContext, header
from vecmill_server.request_priority import HEADER

# Serve adds this header to responses. The router adds both headers.
_ID_HEADERS = (b"x-request-id", b"request-id")

# The router has checked the origin of the request. A replica does not know the origins that are allowed.
_CHECKED_HEADERS = (b"origin", b"sec-fetch-")


class ForwardedRequest(NamedTuple):
    """An HTTP request with a whole body. `client` is the address of the client."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    body: bytes

    @classmethod
    def of(cls, scope: Scope, body: bytes | bytearray, request_id: str) -> "ForwardedRequest":
        """Return the request of an ASGI scope, with the id that the router gave it.

        The headers about the origin, which the router has checked, are left out.
        """
        left_out = (*_CHECKED_HEADERS, b"x-request-id")
        headers = [(name, value) for name, value in scope["headers"] if not name.startswith(left_out)]
        headers.append((b"x-request-id", request_id.encode("ascii")))
        in_path = RequestContext.of(scope).path_priority
        if in_path is not None and header(scope, HEADER) is None:
            headers.append((HEADER, in_path.encode("ascii")))
        client = scope.get("client")
        return cls(
            scope["method"],
            scope["path"],
            scope.get("query_string", b""),
            headers,
            None if client is None else (client[0], client[1]),
            bytes(body),
        )

    def to_scope(self) -> Scope:
        """Return the ASGI scope of the request."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode("utf-8"),
            "query_string": self.query,
            "root_path": "",
            "headers": self.headers,
            "state": {},
            "client": self.client,
            "server": None,
        }


class ForwardedResponse(NamedTuple):
    """The response of a replica. `headers` are without the id of the request."""

    status: int
    headers: HeaderList
    body: bytes


async def wait_for_replica(assigned: Awaitable[object], model: str, limit_s: float) -> None:
    """Wait until Serve has assigned a request for `model` to a replica.

    Serve itself waits without limit while there is no replica. Raises `ModelUnavailable` after `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s):
            await assigned
    except TimeoutError as error:
        raise ModelUnavailable(
            f"The model `{model}` has had no replica for {limit_s:g} seconds. Try again later."
        ) from error


async def run_request(app: ASGIApp, request: ForwardedRequest) -> ForwardedResponse:
    """Run a request through `app`. Cancelling the call cancels the request."""
    status, headers, pieces = 0, [], []
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            # The router cancels the call when the client disconnects.
            await asyncio.get_running_loop().create_future()
        is_read = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            pieces.append(message.get("body", b""))

    await app(request.to_scope(), receive, send)
    kept = [(name, value) for name, value in headers if name not in _ID_HEADERS]
    return ForwardedResponse(status, kept, b"".join(pieces))
