"""The endpoint of all inference routes: it reads the body, runs the request and writes the response.

It handles deadlines, disconnects and large bodies for all dialects.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from vecmill.errors import VecmillError
from vecmill_server.app.result_sizes import is_large_result
from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.error_responses import ErrorResponse
from vecmill_server.base.errors import ClientGone, MalformedRequest
from vecmill_server.base.headers import HeaderList, header
from vecmill_server.base.json_io import (
    LARGE_BODY_BYTES,
    LARGE_INPUT_COUNT,
    decode_object,
    encode_in_pieces,
    encode_json,
)
from vecmill_server.base.json_measure import measure_document
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.fields import Json
from vecmill_server.service.bodies import read_body, watch_client
from vecmill_server.service.request_priority import choose_priority
from vecmill_server.service.service import Service
from vecmill_server.service.unknown_fields import list_names
from vecmill_server.telemetry.request_context import RequestContext, client_of
from vecmill_server.telemetry.tracing.trace import Stage

T = TypeVar("T")


class Endpoint:
    """The ASGI application of one route. Starlette would create a `Request` for each call of a function."""

    def __init__(self, service: Service, route: InferenceRoute) -> None:
        self._service = service
        self._limits = service.body_limits
        self._document_limits = service.document_limits
        self._run_large = service.large_json.run
        self._options = service.dialect_options
        self._report_unknown = service.unknown_fields.report
        self._name = route.name
        self._usual = route.bodies[0]
        self._choose = route.choose
        self._needs_engine = all(body.needs_engine for body in route.bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace = RequestContext.of(scope).trace
        if trace is not None:
            trace.begin(Stage.READ_BODY)
        with self._service.budget.hold() as held:
            # Errors about the bytes of the body have the same response on all routes, because the connection
            # may have to close.
            body = await read_body(scope["headers"], receive, self._limits, held)
            if trace is not None:
                trace.enter(Stage.PARSE)
            kind = self._usual
            try:
                if self._needs_engine:
                    # A token needs at least a byte, so the size tells of many requests that they cannot be
                    # admitted, before they cost any time.
                    self._service.catalog.refuse_if_full(client_of(scope), len(body))
                timeout_s = requested_timeout_s(scope)
                json = await self._decode(body, held)
                if scope["path_params"]:
                    json = {**json, **scope["path_params"]}
                kind = self.choose_body(json)
                is_large = len(body) > LARGE_BODY_BYTES
                asked = await self._run_large(is_large, partial(self._parse, kind, json, scope))
                if trace is not None:
                    trace.enter(Stage.ANSWER)
                del body, json  # so that their memory is free while the model computes
                pieces, headers = await self._answer(kind, asked, timeout_s, scope, receive, held)
            except VecmillError as error:
                await send_error(kind.style.respond(error), scope, send)
                return
            await send_json(send, pieces, headers)

    def choose_body(self, json: Json) -> type[InferenceBody]:
        """Return the class of the body `json`. Raises `UnknownModel` if the class depends on the model."""
        return self._usual if self._choose is None else self._choose(json, self._options)

    async def _decode(self, body: bytes | bytearray, held: HeldBytes) -> Json:
        """Return the JSON object in `body`, and count its memory in `held`."""
        if len(body) <= LARGE_BODY_BYTES:
            return decode_object(body)
        held.reserve(await asyncio.to_thread(measure_document, body, self._document_limits))
        return await self._run_large(True, lambda: decode_object(body))

    def _parse(self, kind: type[InferenceBody], json: Json, scope: Scope) -> Asked:
        """Read the body, and report its unknown fields. Raises `InvalidRequest`."""
        unknown = kind.unknown_fields(json)
        if unknown:
            RequestContext.of(scope).headers.append((b"x-unknown-fields", list_names(unknown)))
            self._report_unknown(unknown, self._name)
        return kind.parse(json, self._options)

    async def _answer(
        self,
        kind: type[InferenceBody],
        asked: Asked,
        timeout_s: float | None,
        scope: Scope,
        receive: Receive,
        held: HeldBytes,
    ) -> tuple[list[bytes], HeaderList]:
        """Return the body of the response, and the headers that depend on the result."""
        context, request = RequestContext.of(scope), asked.request
        model = self._service.catalog.resolve_serving(asked.model, request.tasks)
        context.texts = len(request.sizes)
        if context.trace is not None:
            context.trace.describe(request, model.name)
        priority = choose_priority(scope, request.priority)
        computing = asked.run(model.mill, timeout_s, client_of(scope), priority, context.trace)
        result = await unless_client_leaves(computing, scope, receive)
        context.tokens = result.token_count
        envelope = Envelope(context.request_id, model.name, int(self._service.wall_clock()))
        headers = kind.style.headers(request, result, model.mill.info.device)
        if result.truncated_count:
            headers.append((b"x-truncated-inputs", b"%d" % result.truncated_count))
        if context.texts > LARGE_INPUT_COUNT or is_large_result(result):
            pieces = await self._run_large(True, lambda: encode_in_pieces(asked.write(result, envelope)))
        else:
            pieces = [encode_json(asked.write(result, envelope))]
        held.reserve(sum(map(len, pieces)))
        if kind.needs_engine:
            tokens = result.token_count
            self._service.metrics.work_done(context.owner, model.name, texts=context.texts, tokens=tokens)
        return pieces, headers


async def send_error(response: ErrorResponse, scope: Scope, send: Send) -> None:
    """Send an error response, and note its reason for the metrics and the log."""
    RequestContext.of(scope).reason = response.reason
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})


async def unless_client_leaves(awaitable: Awaitable[T], scope: Scope, receive: Receive) -> T:
    """Return the result of `awaitable`; cancel it and raise `ClientGone` if the client disconnects.

    The body must have been read. `half_closed` describes clients that close only their sending side.
    """
    task = asyncio.current_task()
    assert task is not None
    left = asyncio.Event()
    is_waiting = False

    def leave() -> None:
        left.set()
        if is_waiting:
            task.cancel()

    stop_watching = watch_client(scope, receive, leave)
    if left.is_set():
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise ClientGone
    is_waiting = True
    try:
        return await awaitable
    except asyncio.CancelledError:
        # If the task was also cancelled from outside, the cancellation continues.
        if left.is_set() and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        stop_watching()


def requested_timeout_s(scope: Scope) -> float | None:
    """Return the time limit in `x-request-timeout-ms`, in seconds. Raises `MalformedRequest`."""
    value = header(scope, b"x-request-timeout-ms")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        raise MalformedRequest(
            "The header x-request-timeout-ms must be a whole number of milliseconds, at least 1.",
            field="x-request-timeout-ms",
        )
    return int(value) / 1000


async def send_json(send: Send, pieces: Sequence[bytes], extra_headers: HeaderList) -> None:
    """Send a response with status 200. `pieces` together are the body."""
    length = sum(map(len, pieces))
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % length),
            *extra_headers,
        ],
    }
    await send(start)
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": index < last})
