"""The inference routes and their endpoint: it reads the body, runs the request and writes the response.

It handles deadlines, disconnects and large bodies for all dialects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.mill import Mill
from vecmill.requests import Request
from vecmill.results import (
    ClassifyResult,
    EmbedOutputsResult,
    EmbedResult,
    EmbedSparseResult,
    EmbedTokensResult,
    Result,
    ScoreTokensResult,
)
from vecmill.values.clock import monotonic
from vecmill_server.app.request_options import choose_priority, expected_space, requested_timeout_s
from vecmill_server.app.request_record import CONTEXT, RequestContext
from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.catalog import ModelState, ServedModel
from vecmill_server.base.errors import ClientGone
from vecmill_server.base.headers import HeaderList, header
from vecmill_server.base.json_io import (
    LARGE_BODY_BYTES,
    LARGE_INPUT_COUNT,
    decode_object,
    encode_in_pieces,
    encode_json,
)
from vecmill_server.base.json_measure import measure_document
from vecmill_server.dialects.dialect import (
    JSON,
    Asked,
    Choose,
    CompositeResult,
    Envelope,
    InferenceBody,
    InferenceRoute,
    WrittenBody,
)
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.dialects.fields import Json
from vecmill_server.dialects.raw_bytes import negotiate_encoding
from vecmill_server.dialects.space_headers import check_expected_space, space_headers
from vecmill_server.dialects.truncated_inputs import truncated_headers
from vecmill_server.service.bodies import BodyLimits, read_body, watch_client
from vecmill_server.service.service import Service
from vecmill_server.service.unknown_words import list_names
from vecmill_server.telemetry.tracing.trace import Stage

T = TypeVar("T")

# Computes a request within a time limit in seconds: its result, and the headers that depend on the model.
Compute = Callable[[float | None], Awaitable[tuple[Result, HeaderList]]]

# The time that an operator waits for a load, in seconds.
LONGEST_LOAD_S = 3600.0
# The device of a request that is answered without a loaded model.
NO_DEVICE = "none"
# What is left at least of a client's time limit after a load.
LEAST_TIMEOUT_S = 0.001

# Writing so many numbers as JSON takes about a millisecond.
LARGE_RESULT_VALUES = 16_384


def inference_routes(service: Service) -> list[Route]:
    """Return the routes that run a model, at the paths of every dialect."""
    return [
        Route(path, Endpoint(service, route), methods=["POST"], name=route.name)
        for path, route in routes_by_path().items()
    ]


class Endpoint:
    """The ASGI application of one route. Starlette would create a `Request` for each call of a function.

    `choose` returns the class of a body, and raises `UnknownModel` if the class depends on the model.
    """

    def __init__(self, service: Service, route: InferenceRoute) -> None:
        self._service = service
        self._limits = BodyLimits.of(service.settings)
        self._document_limits = service.catalog.document_limits
        self._run_large = service.large_json.run
        self._options = service.dialect_options
        self._report_unknown = service.unknown_fields.report
        self._name = route.name
        self._usual = route.bodies[0]
        only_style = route.only_style
        # The response to an error about the bytes of the body, before anyone knows which API it is of.
        self._respond_unread = None if only_style is None else only_style.respond
        self.choose = route.choose or _always(self._usual)
        self._needs_engine = all(body.needs_engine for body in route.bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: RequestContext = scope[CONTEXT]
        held = HeldBytes(self._service.budget)
        try:
            kind, asked, timeout_s = await self._read(context, scope, receive, held)
            body = await self._answer(kind, asked, timeout_s, context, scope, receive, held)
            await send_pieces(send, body.pieces, body.headers, body.content_type)
        finally:
            held.release()

    async def _read(
        self, context: RequestContext, scope: Scope, receive: Receive, held: HeldBytes
    ) -> tuple[type[InferenceBody], Asked, float | None]:
        """Return the class of the body, the request that it asks for, and the time limit in seconds.

        The body and its JSON object are gone while the model computes.
        """
        trace = context.trace
        if trace is not None:
            trace.begin(Stage.READ_BODY)
        body = await self._read_body(context, scope, receive, held)
        if trace is not None:
            trace.enter(Stage.PARSE)
        if self._needs_engine:
            # A token needs at least a byte, so the size tells of many requests that they cannot be admitted,
            # before they cost any time.
            self._service.catalog.refuse_if_full(context.client, len(body))
        timeout_s = requested_timeout_s(scope)
        is_large = len(body) > LARGE_BODY_BYTES
        json = await self._decode_large(body, held) if is_large else decode_object(body)
        if scope["path_params"]:
            json = {**json, **scope["path_params"]}
        kind = self.choose(json, self._options)
        context.respond = kind.style.respond
        if kind.may_be_raw:
            json = negotiate_encoding(json, header(scope, b"accept"))
        if is_large:
            asked = await self._run_large(True, partial(self._parse, kind, json, context))
        else:
            asked = self._parse(kind, json, context)
        if trace is not None:
            trace.enter(Stage.ANSWER)
        return kind, asked, timeout_s

    async def _read_body(
        self, context: RequestContext, scope: Scope, receive: Receive, held: HeldBytes
    ) -> bytes | bytearray:
        """Return the bytes of the body, and let the context know that they are there."""
        context.respond = self._respond_unread
        body = await read_body(scope, receive, self._limits, held)
        context.has_body, context.respond = True, self._usual.style.respond
        return body

    async def _decode_large(self, body: bytes | bytearray, held: HeldBytes) -> Json:
        """Return the JSON object in `body`, and count its memory in `held`."""
        held.reserve(await asyncio.to_thread(measure_document, body, self._document_limits))
        return await self._run_large(True, lambda: decode_object(body))

    def _parse(self, kind: type[InferenceBody], json: Json, context: RequestContext) -> Asked:
        """Read the body, and report its unknown fields. Raises `InvalidRequest`."""
        unknown = kind.unknown_fields(json)
        if unknown:
            context.headers.append((b"x-unknown-fields", list_names(unknown)))
            self._report_unknown(unknown, self._name)
        return kind.parse(json, self._options)

    async def _answer(
        self,
        kind: type[InferenceBody],
        asked: Asked,
        timeout_s: float | None,
        context: RequestContext,
        scope: Scope,
        receive: Receive,
        held: HeldBytes,
    ) -> WrittenBody:
        """Return the body of the response, with the headers that depend on the result."""
        request, catalog = asked.request, self._service.catalog
        if kind.loads_for_admin:
            catalog.restore(asked.model, is_admin=context.is_admin)
        model = catalog.resolve_serving(asked.model, request.tasks)
        context.texts = len(request.sizes)
        if context.trace is not None:
            context.trace.describe(request, model.name)
        priority = choose_priority(scope, context, request.priority)
        expected = expected_space(scope)

        async def compute(timeout_s: float | None) -> tuple[Result, HeaderList]:
            if expected is not None:
                check_expected_space(expected, model.mill, request)
            caller = asked.caller(timeout_s, context.client, priority, context.trace, context.results_owner)
            result = await asked.run(model.mill, caller)
            return result, _describe(kind, request, result, model.mill)

        computing = self._compute(kind, asked, model, timeout_s, context, compute)
        result, headers = await unless_client_leaves(computing, scope, receive)
        tokens = context.tokens = result.token_count
        envelope = Envelope(context.request_id, model.name, int(self._service.wall_clock()))
        is_large = context.texts > LARGE_INPUT_COUNT or is_large_result(result)
        if asked.write_raw is not None:
            body = await self._run_large(is_large, partial(asked.write_raw, result, envelope))
        elif is_large:
            write = partial(asked.write_document, result, envelope)
            body = WrittenBody(await self._run_large(True, lambda: encode_in_pieces(write())))
        else:
            body = WrittenBody([encode_json(asked.write_document(result, envelope))])
        body.headers.extend(headers)
        held.reserve(sum(map(len, body.pieces)))
        if kind.needs_engine:
            self._service.metrics.work_done(context.owner, model.name, texts=context.texts, tokens=tokens)
        return body

    async def _compute(
        self,
        kind: type[InferenceBody],
        asked: Asked,
        model: ServedModel,
        timeout_s: float | None,
        context: RequestContext,
        compute: Compute,
    ) -> tuple[Result, HeaderList]:
        """Return what `compute` does within the time limit. The model is held in memory meanwhile."""
        if kind.needs_engine:
            model.used_at = monotonic()
        if model.resident is None:  # it stays loaded
            return await compute(timeout_s)
        catalog = self._service.catalog
        if kind.loads_for_admin and context.is_admin:
            async with catalog.hold(model, LONGEST_LOAD_S, context.client):
                result = await asked.run(model.mill, asked.caller())
            return result, kind.style.headers(asked.request, result, NO_DEVICE)
        if not kind.needs_model or _only_drops(asked, model):
            result = await asked.run(model.mill, asked.caller())
            return result, kind.style.headers(asked.request, result, NO_DEVICE)
        wait_s = asked.request.timeout_s if timeout_s is None else timeout_s
        began = monotonic()
        async with catalog.hold(model, wait_s, context.client, asked.keep_s, is_admin=context.is_admin):
            if timeout_s is not None:  # which counts for the load too
                timeout_s = max(timeout_s - (monotonic() - began), LEAST_TIMEOUT_S)
            return await compute(timeout_s)


def _only_drops(asked: Asked, model: ServedModel) -> bool:
    """Return whether a request asks for nothing but that a model is dropped, which is not loaded."""
    return asked.keep_s == 0 and not asked.request.sizes and model.state is ModelState.NOT_LOADED


def _describe(kind: type[InferenceBody], request: Request[Any], result: Result, mill: Mill) -> HeaderList:
    """Return the headers that depend on the result, and on the model that gave it."""
    headers = kind.style.headers(request, result, mill.info.device)
    headers += space_headers(mill, request)
    if result.truncated:
        headers += truncated_headers(result.truncated)
    if isinstance(result, EmbedResult | EmbedOutputsResult | CompositeResult) and result.cached_count:
        headers.append((b"x-cached-inputs", b"%d" % result.cached_count))
    return headers


def _always(kind: type[InferenceBody]) -> Choose:
    return lambda _json, _options: kind


async def unless_client_leaves(awaitable: Awaitable[T], scope: Scope, receive: Receive) -> T:
    """Return the result of `awaitable`; cancel it and raise `ClientGone` if the client disconnects.

    The body must have been read. `http1.client_output` describes clients that close only their sending side.
    """
    task = asyncio.current_task()
    assert task is not None
    departures: list[bool] = []
    is_waiting = False

    def leave() -> None:
        departures.append(is_waiting)
        if is_waiting:
            task.cancel()

    stop_watching = watch_client(scope, receive, leave)
    if departures:
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise ClientGone
    is_waiting = True
    try:
        return await awaitable
    except asyncio.CancelledError:
        # If the task was also cancelled from outside, the cancellation continues.
        if departures and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        stop_watching()


async def send_pieces(
    send: Send, pieces: Sequence[bytes], extra_headers: HeaderList, content_type: bytes = JSON
) -> None:
    """Send a response with status 200. `pieces` together are the body."""
    length = sum(map(len, pieces))
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % length), *extra_headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": index < last})


def is_large_result(result: Result) -> bool:
    """Return whether writing `result` as JSON would block the event loop for other requests."""
    return max(_count_values(result), result.token_count) > LARGE_RESULT_VALUES


def _count_values(result: Result) -> int:
    match result:
        case EmbedResult():
            return result.embeddings.size
        case ClassifyResult():
            return result.scores.size
        case EmbedTokensResult():
            return sum(each.size for each in result.embeddings)
        case ScoreTokensResult():
            return sum(each.size for each in result.scores)
        case EmbedSparseResult():
            return sum(len(each.columns) for each in result.embeddings)
        case EmbedOutputsResult():
            size = 0 if result.dense is None else result.dense.size
            size += sum(len(each.columns) for each in result.sparse or ())
            return size + sum(each.size for each in result.vectors or ())
    return 0
