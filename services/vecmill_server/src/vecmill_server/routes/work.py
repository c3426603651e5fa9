"""What every route that computes does: read a body in some dialect, ask a model, answer in that dialect.

Deadlines, disconnects and large bodies are dealt with here, once for all dialects.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from vecmill.errors import VecmillError
from vecmill_server.bodies import read_body
from vecmill_server.dialects import Asked, Dialect, Document
from vecmill_server.documents import (
    LARGE_BODY_BYTES,
    LARGE_ROWS,
    Envelope,
    decode_object,
    encode_json,
    run_off_loop,
)
from vecmill_server.errors import ClientGone, MalformedRequest
from vecmill_server.exchange import Exchange, header, send_json
from vecmill_server.problems import ProblemResponse
from vecmill_server.service import Service

Result = TypeVar("Result")

Choose = Callable[[Document], Dialect]


class Endpoint:
    """POST. An ASGI application rather than a function, which saves a request object.

    `choose` says which dialect a document is written in; what cannot be read as a document at all is
    answered in the `usual` one.
    """

    def __init__(self, service: Service, usual: Dialect, choose: Choose | None = None) -> None:
        self._service = service
        self._limits = service.body_limits
        self._options = service.dialect_options
        self._usual = usual
        self._choose = choose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What is wrong with the body's bytes is answered as everywhere: the connection may have to close.
        body = await read_body(scope["headers"], receive, self._limits)
        is_large = len(body) > LARGE_BODY_BYTES
        dialect = self._usual
        try:
            timeout_s = requested_timeout_s(scope)
            document = await run_off_loop(is_large, lambda: decode_object(body))
            if scope["path_params"]:
                document = {**document, **scope["path_params"]}
            dialect = self.choose_dialect(document)
            read = dialect.read
            asked = await run_off_loop(is_large, lambda: read(document, self._options))
            await self._answer(dialect, asked, timeout_s, scope, receive, send)
        except VecmillError as error:
            await _send_problem(dialect.problem(error), scope, send)

    def choose_dialect(self, document: Document) -> Dialect:
        """The dialect that `document` is written in. Raises `UnknownModel` where its model decides that."""
        return self._usual if self._choose is None else self._choose(document)

    async def _answer(
        self,
        dialect: Dialect,
        asked: Asked,
        timeout_s: float | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        exchange, call = Exchange.of(scope), asked.call
        model = self._service.catalog.resolve(call.model, call.tasks)
        exchange.texts = len(call.sizes)
        result = await unless_client_leaves(call.run(model.mill, timeout_s), receive)
        exchange.tokens = result.token_count
        envelope = Envelope(exchange.request_id, model.name, int(self._service.wall_clock()))
        body = await run_off_loop(
            exchange.texts > LARGE_ROWS, lambda: encode_json(asked.write(result, envelope))
        )
        await send_json(send, body, dialect.headers(call, result, model.mill.info.device))


async def _send_problem(response: ProblemResponse, scope: Scope, send: Send) -> None:
    Exchange.of(scope).reason = response.reason
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})


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
