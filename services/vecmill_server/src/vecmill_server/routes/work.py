"""What every route that computes has in common: deadlines, disconnects, large bodies."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.types import Receive, Scope

from vecmill_server.bodies import read_body
from vecmill_server.errors import ClientGone, MalformedRequest
from vecmill_server.exchange import header
from vecmill_server.service import Service

Call = TypeVar("Call")
Result = TypeVar("Result")

# Reading or writing more than this at once would keep the event loop from everybody else.
LARGE_BODY_BYTES = 256 * 1024
LARGE_ROWS = 64


@dataclass(frozen=True, slots=True)
class Asked(Generic[Call]):
    """A request that was read: its body, the deadline that it asks for, and whether it is long."""

    call: Call
    timeout_s: float | None
    is_large: bool


async def read_call(
    service: Service, scope: Scope, receive: Receive, decode: Callable[[bytes], Call]
) -> Asked[Call]:
    """Read a request whose body `decode` makes sense of. Raises `MalformedRequest` and as `decode` does."""
    timeout_s = requested_timeout_s(scope)
    body = await read_body(scope["headers"], receive, service.body_limits)
    is_large = len(body) > LARGE_BODY_BYTES
    return Asked(await run_off_loop(is_large, lambda: decode(body)), timeout_s, is_large)


async def run_off_loop(is_large: bool, function: Callable[[], Result]) -> Result:
    """`function()`, in another thread if it is large: for a small one the hand-over costs more."""
    return await asyncio.to_thread(function) if is_large else function()


async def unless_client_leaves(work: Awaitable[Result], receive: Receive) -> Result:
    """The result of `work`; cancels it and raises `ClientGone` when the client closes its connection.

    The body must have been read. A client that closes only its sending side is taken for gone: until
    something is written to it the two look the same.
    """
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        # Somebody else may have cancelled us too: then it is not ours to swallow.
        if has_left and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()


def requested_timeout_s(scope: Scope) -> float | None:
    """The deadline that the client asks for in `x-request-timeout-ms`. Raises `MalformedRequest`."""
    value = header(scope, b"x-request-timeout-ms")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        raise MalformedRequest(
            "The header x-request-timeout-ms must be a whole number of milliseconds, at least 1.",
            field="x-request-timeout-ms",
        )
    return int(value) / 1000
