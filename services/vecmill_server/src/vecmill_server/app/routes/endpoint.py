"""The inference routes and their endpoint: it reads the body, runs the request and writes the response.

It handles deadlines, disconnects and large bodies for all dialects.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.mill import Mill
from vecmill.requests import Caller, Request
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
from vecmill_server.app.request_options import (
    PRIORITY_HEADER,
    SPACE_HEADER,
    TIMEOUT_HEADER,
    choose_priority,
    expected_space,
    requested_timeout_s,
)
from vecmill_server.app.request_record import CONTEXT, RequestContext
from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_io import (
    LARGE_BODY_BYTES,
    LARGE_INPUT_COUNT,
    decode_object,
    encode_in_pieces,
    encode_json,
)
from vecmill_server.base.json_measure import measure_document
from vecmill_server.catalog.admin_changes import restore_model
from vecmill_server.catalog.catalog import ModelState, ServedModel
from vecmill_server.dialects.dialect import (
    JSON,
    Asked,
    Choose,
    CompositeRequest,
    CompositeResult,
    Envelope,
    InferenceBody,
    InferenceRoute,
    WrittenBody,
)
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.dialects.fields import Json
from vecmill_server.dialects.raw_bytes import negotiate_encoding
from vecmill_server.dialects.space_headers import check_expected_space, space_of_answer, write_space
from vecmill_server.dialects.truncated_inputs import truncated_headers
from vecmill_server.http1.request_cycle import CYCLE, RequestCycle, split_lines, write_lines
from vecmill_server.service.bodies import BodyLimits, UnlessClientLeaves, read_body, take_body
from vecmill_server.service.drain import Phase
from vecmill_server.service.service import Service
from vecmill_server.service.unknown_words import list_names
from vecmill_server.telemetry.tracing.trace import Stage

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
        sent, held = context.sent, HeldBytes(self._service.budget)
        try:
            if context.trace is not None:
                context.trace.begin(Stage.READ_BODY)
            context.respond = self._respond_unread
            body = take_body(scope, self._limits, held)
            if body is None:
                body = await read_body(scope, receive, self._limits, held)
            self._check_room(context, len(body))
            timeout_s = requested_timeout_s(sent) if TIMEOUT_HEADER in sent else None
            if len(body) > LARGE_BODY_BYTES:
                kind, asked = await self._parse_large(body, scope, context, held)
            else:
                kind, asked = self._parse(decode_object(body), scope, context)
            del body  # it is gone while the model computes, and so is its JSON object
            model = self._find_model(kind, asked, context)
            caller = self._find_caller(asked.request, timeout_s, context, held)
            expected = expected_space(sent) if SPACE_HEADER in sent else None
            if kind.needs_engine:
                model.used_at = monotonic()
            with UnlessClientLeaves(scope, receive):
                if model.resident is None:  # it stays loaded
                    if expected is not None:
                        check_expected_space(expected, model.mill, asked.request)
                    result = await asked.start(model.mill, caller)
                    lines = _describe(kind, asked.request, result, model.mill)
                else:
                    result, lines = await self._hold_and_run(kind, asked, model, caller, expected, context)
            envelope = Envelope(context.request_id, model.name, int(self._service.wall_clock()))
            tokens = context.tokens = result.token_count
            if context.texts > LARGE_INPUT_COUNT or max(tokens, count_values(result)) > LARGE_RESULT_VALUES:
                answer = await self._run_large(True, partial(_write, asked, result, envelope, is_large=True))
            else:
                answer = _write(asked, result, envelope, is_large=False)
            del result  # it is gone while a slow client takes the response
            held.reserve(sum(map(len, answer.pieces)))
            if kind.needs_engine and context.owner is not None:
                self._service.metrics.work_done(context.owner, model.name, texts=context.texts, tokens=tokens)
            sending = send_answer(scope, context, send, answer, lines)
            if sending is not None:
                await sending
        finally:
            held.release()

    def _check_room(self, context: RequestContext, size: int) -> None:
        """Let the context know that the body is there, and refuse the request if there is no room for it."""
        context.has_body, context.respond = True, self._usual.style.respond
        if context.trace is not None:
            context.trace.enter(Stage.PARSE)
        if self._needs_engine:
            # A token needs at least a byte, so the size tells of many requests that they cannot be admitted,
            # before they cost any time.
            self._service.catalog.refuse_if_full(context.client, size)

    async def _parse_large(
        self, body: bytes | bytearray, scope: Scope, context: RequestContext, held: HeldBytes
    ) -> tuple[type[InferenceBody], Asked]:
        """As `_parse`, in threads."""
        json = await self._decode_large(body, held)
        return await self._run_large(True, partial(self._parse, json, scope, context))

    async def _decode_large(self, body: bytes | bytearray, held: HeldBytes) -> Json:
        """Return the JSON object in `body`, and count its memory in `held`."""
        held.reserve(await asyncio.to_thread(measure_document, body, self._document_limits))
        return await self._run_large(True, lambda: decode_object(body))

    def _parse(self, json: Json, scope: Scope, context: RequestContext) -> tuple[type[InferenceBody], Asked]:
        """Read the body, with what path and header say, and report its unknown fields.

        Returns its class too. Raises `UnknownModel` and `InvalidRequest`.
        """
        if scope["path_params"]:
            json = {**json, **scope["path_params"]}
        kind = self.choose(json, self._options)
        context.respond = kind.style.respond
        accept = context.sent.get(b"accept")
        if kind.may_be_raw and accept is not None and b"octet-stream" in accept:
            json = negotiate_encoding(json, accept)
        unknown = kind.unknown_fields(json)
        if unknown:
            context.headers.append((b"x-unknown-fields", list_names(unknown)))
            self._report_unknown(unknown, self._name)
        return kind, kind.parse(json, self._options)

    def _find_model(self, kind: type[InferenceBody], asked: Asked, context: RequestContext) -> ServedModel:
        """Return the model that computes a request, and let the context know what that is."""
        if context.trace is not None:
            context.trace.enter(Stage.ANSWER)
        request, catalog = asked.request, self._service.catalog
        if kind.loads_for_admin:
            restore_model(catalog, asked.model, is_admin=context.is_admin)
        model = catalog.resolve_serving(asked.model, request.tasks, needs_pictures=bool(request.pictures))
        context.texts, context.field_names = len(request.sizes), asked.field_names
        if context.trace is not None:
            context.trace.describe(request, model.name)
        return model

    def _find_caller(
        self, request: Request[Any], timeout_s: float | None, context: RequestContext, held: HeldBytes
    ) -> Caller:
        """Return who asks, with the time limit in a header or else in the body.

        Bytes of pictures count in `held`, those of URLs when they are fetched. Raises `MalformedRequest`, and
        the errors of `HeldBytes.reserve`.
        """
        priority = request.priority
        if context.path_priority or context.key_priority or PRIORITY_HEADER in context.sent:
            priority = choose_priority(context.sent, context, priority)
        if timeout_s is None:
            timeout_s = request.timeout_s
        caller = Caller(priority, timeout_s, context.client, context.cache_owner, context.trace)
        fetcher = self._service.picture_fetcher
        if pictures := request.pictures:
            held.reserve(sum(map(len, pictures)))
        if not pictures or fetcher is None:
            return caller
        return replace(caller, fetch=partial(fetcher.fetch, caller.client, held))

    async def _hold_and_run(
        self,
        kind: type[InferenceBody],
        asked: Asked,
        model: ServedModel,
        caller: Caller,
        expected: str | None,
        context: RequestContext,
    ) -> tuple[Result, bytes]:
        """Return the result of a model loaded on demand, and the lines of the headers about it.

        The model is held in memory meanwhile.
        """
        request, hold = asked.request, self._service.catalog.hold
        if kind.loads_for_admin and context.is_admin:
            async with hold(model, LONGEST_LOAD_S, context.client):
                result = await asked.start(model.mill, asked.caller())
            return result, kind.style.write_headers(request, result, NO_DEVICE)
        if not kind.needs_model or _only_drops(asked, model):
            result = await asked.start(model.mill, asked.caller())
            return result, kind.style.write_headers(request, result, NO_DEVICE)
        began = monotonic()
        async with hold(model, caller.timeout_s, context.client, asked.keep_s, is_admin=context.is_admin):
            if caller.timeout_s is not None:  # which counts for the load too
                left_s = max(caller.timeout_s - (monotonic() - began), LEAST_TIMEOUT_S)
                caller = replace(caller, timeout_s=left_s)
            if expected is not None:
                check_expected_space(expected, model.mill, request)
            result = await asked.start(model.mill, caller)
            return result, _describe(kind, request, result, model.mill)


def _only_drops(asked: Asked, model: ServedModel) -> bool:
    """Return whether a request asks for nothing but that a model is dropped, which is not loaded."""
    return asked.keep_s == 0 and not asked.request.sizes and model.state is ModelState.NOT_LOADED


def _describe(kind: type[InferenceBody], request: Request[Any], result: Result, mill: Mill) -> bytes:
    """Return the lines of the headers that depend on the result, and on the model that gave it."""
    lines = kind.style.write_headers(request, result, mill.info.device)
    is_composed = isinstance(request, CompositeRequest)
    space = space_of_answer(mill, request) if is_composed else mill.find_space(request)
    if space is not None:
        lines += write_space(space.space, space.exact, space.prompt_name)
    if result.truncated:
        lines += write_lines(truncated_headers(result.truncated))
    if isinstance(result, EmbedResult | EmbedOutputsResult | CompositeResult) and result.cached_count:
        lines += b"x-cached-inputs: %d\r\n" % result.cached_count
    return lines


def _always(kind: type[InferenceBody]) -> Choose:
    return lambda _json, _options: kind


def _write(asked: Asked, result: Result, envelope: Envelope, *, is_large: bool) -> WrittenBody:
    """Return the body of the response. A large one is in pieces."""
    if asked.write_raw is not None:
        return asked.write_raw(result, envelope)
    document = asked.write_document(result, envelope)
    return WrittenBody(encode_in_pieces(document) if is_large else [encode_json(document)])


def send_answer(
    scope: Scope, context: RequestContext, send: Send, answer: WrittenBody, lines: bytes
) -> Awaitable[None] | None:
    """Send a response with status 200. Return what to wait for, `None` if it is sent.

    `lines` are the headers beside those of `answer`.
    """
    pieces = answer.pieces
    if answer.headers:
        lines = write_lines(answer.headers) + lines
    cycle: RequestCycle | None = scope.get(CYCLE)
    if cycle is None or context.send is not None or len(pieces) > 1:
        return send_pieces(send, pieces, split_lines(lines), answer.content_type)
    body = pieces[0]
    about_body = b"content-type: %b\r\ncontent-length: %d\r\n" % (answer.content_type, len(body))
    if context.drain.phase is not Phase.READY:
        cycle.keeps_alive = False
    return cycle.answer(200, about_body + lines + context.begin_response(200), body)


async def send_pieces(
    send: Send, pieces: Sequence[bytes], extra_headers: HeaderList, content_type: bytes = JSON
) -> None:
    """Send a response with status 200. `pieces` together are the body."""
    length = b"%d" % sum(map(len, pieces))
    headers = [(b"content-type", content_type), (b"content-length", length), *extra_headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": index < last})


def count_values(result: Result) -> int:
    """Return how many numbers the response to `result` has, beside those of its tokens."""
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
