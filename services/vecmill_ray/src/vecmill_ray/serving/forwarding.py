"""HTTP requests on their way from the router to a replica, and the run of such a request in the replica.

How it works. The replica sends heartbeats until it has the response. If a replica dies or falls silent, for
example because its node is cut off, the router sends the request to another one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Scope

from vecmill_server.app.request_options import PRIORITY_HEADER
from vecmill_server.app.request_record import RequestContext
from vecmill_server.base.errors import ModelUnavailable
from vecmill_server.base.headers import HeaderList, header

logger = logging.getLogger(__name__)

# A replica computes in threads, so its event loop sends heartbeats while it computes. Ray itself gives up a
# node that is cut off after about a minute.
HEARTBEAT_S = 1.0
SILENCE_S = 5.0

# Serve may choose the lost replica once more, as long as it has not noticed.
MOST_SENDS = 3
MOST_SENDS_TO_DEATH = 2

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
        if in_path is not None and header(scope, PRIORITY_HEADER) is None:
            headers.append((PRIORITY_HEADER, in_path.encode("ascii")))
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


class Attempt(Protocol):
    """A request at one replica: its heartbeats, which are `None`, and then its response."""

    def __anext__(self) -> "Awaitable[ForwardedResponse | None]": ...

    def cancel(self) -> object:
        """End the request at the replica."""
        ...


@dataclass(frozen=True, slots=True)
class Failover:
    """When a request is sent to another replica.

    A replica is lost if it gives no sign of life for `silence_s`, or with an error of `lost`. An inference
    changes nothing, so it can be computed twice. A request that ends processes must not end them all,
    so there are few attempts.
    """

    lost: tuple[type[Exception], ...]
    silence_s: float = SILENCE_S

    async def ask(self, send: Callable[[], Attempt], model: str, limit_s: float) -> ForwardedResponse:
        """Return the response of the first replica that stays alive until it responds.

        Without any replica, Serve holds a request without limit. Raises `ModelUnavailable` if there is none
        for `limit_s`, or if several replicas in succession are lost.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        for sent in range(1, MOST_SENDS + 1):
            if sent > 1:
                logger.warning("a replica of the model %s is lost; its request is sent again", model)
            attempt, is_heard = send(), False
            try:
                while True:
                    # The last attempt waits for a replica, if Serve has none.
                    waits = sent == MOST_SENDS and not is_heard
                    end = deadline if waits else loop.time() + self.silence_s
                    async with asyncio.timeout_at(end if is_heard else min(end, deadline)):
                        response = await attempt.__anext__()
                    is_heard = True
                    if response is not None:
                        return response
            except asyncio.CancelledError:
                attempt.cancel()
                raise
            except TimeoutError as error:
                attempt.cancel()
                if not is_heard and loop.time() >= deadline:
                    raise ModelUnavailable(
                        f"The model `{model}` has had no replica for {limit_s:g} seconds. Try again later."
                    ) from error
            except self.lost as error:
                if sent >= MOST_SENDS_TO_DEATH:
                    raise _no_answer(model) from error
        raise _no_answer(model)


def _no_answer(model: str) -> ModelUnavailable:
    return ModelUnavailable(f"No replica of the model `{model}` has answered. Another replica may answer.")


async def with_heartbeats(
    running: Coroutine[Any, Any, ForwardedResponse], period_s: float = HEARTBEAT_S
) -> AsyncGenerator[ForwardedResponse | None, None]:
    """Run a request, and yield `None` each `period_s` until its response, which is the last item."""
    task = asyncio.ensure_future(running)
    try:
        while not (await asyncio.wait({task}, timeout=period_s))[0]:
            yield None
        yield task.result()
    finally:
        task.cancel()  # has no effect on a request that has ended


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
