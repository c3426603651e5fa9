"""`/predict`, `/embed_sparse` and `/embed_all`, with bodies and errors as TEI's clients know them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.errors import InvalidRequest, VecmillError
from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.operations.multi_vector import Side
from vecmill.types import Timings
from vecmill_server.bodies import read_body
from vecmill_server.exchange import Exchange, send_json, timing_headers
from vecmill_server.problems import tei_response
from vecmill_server.routes.work import (
    LARGE_BODY_BYTES,
    LARGE_ROWS,
    requested_timeout_s,
    run_off_loop,
    unless_client_leaves,
)
from vecmill_server.service import Service
from vecmill_server.wire.tei import (
    PredictCall,
    TextsCall,
    decode_predict,
    decode_texts,
    encode_all,
    encode_entities,
    encode_labels,
    encode_sparse,
)

_CLASSIFIERS = (Task.CLASSIFY, Task.CLASSIFY_TOKENS, Task.RERANK)


@dataclass(frozen=True, slots=True)
class Reply:
    """What an operation gave, and how to write it. `texts` counts the inputs."""

    texts: int
    tokens: int
    timings: Timings
    write: Callable[[], bytes]


Answer = Callable[[Mill, float | None], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that was read: the model's name, which tasks it is for, and how a mill answers it."""

    model: str | None
    tasks: tuple[Task, ...]
    answer: Answer


def tei_routes(service: Service) -> list[Route]:
    """The routes of this family, at the root alone."""
    readers = {"predict": read_predict, "embed_sparse": read_embed_sparse, "embed_all": read_embed_all}
    return [
        Route(f"/{name}", Work(service, read), methods=["POST"], name=name) for name, read in readers.items()
    ]


class Work:
    """POST: inputs to whatever `read` says."""

    def __init__(self, service: Service, read: Callable[[bytes], Asked]) -> None:
        self._service = service
        self._limits = service.body_limits
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What is wrong with the body's bytes is answered as everywhere: the connection may have to close.
        body = await read_body(scope["headers"], receive, self._limits)
        try:
            reply = await self._compute(scope, body, receive)
        except VecmillError as error:
            await _send_error(error, scope, send)
            return
        exchange = Exchange.of(scope)
        exchange.texts, exchange.tokens = reply.texts, reply.tokens
        answer = await run_off_loop(reply.texts > LARGE_ROWS, reply.write)
        await send_json(send, answer, timing_headers(reply.timings))

    async def _compute(self, scope: Scope, body: bytes, receive: Receive) -> Reply:
        timeout_s = requested_timeout_s(scope)
        asked = await run_off_loop(len(body) > LARGE_BODY_BYTES, lambda: self._read(body))
        model = self._service.catalog.resolve(asked.model, asked.tasks)
        return await unless_client_leaves(asked.answer(model.mill, timeout_s), receive)


def read_predict(body: bytes) -> Asked:
    """Labels of texts, of pairs, or of tokens: whatever the model has."""
    call = decode_predict(body)

    async def answer(mill: Mill, timeout_s: float | None) -> Reply:
        if mill.description.task is Task.CLASSIFY_TOKENS:
            return await _predict_tokens(mill, call, timeout_s)
        return await _predict_texts(mill, call, timeout_s)

    return Asked(call.model, _CLASSIFIERS, answer)


async def _predict_texts(mill: Mill, call: PredictCall, timeout_s: float | None) -> Reply:
    inputs, is_batch = call.texts_or_pairs()
    result = await mill.classify(
        inputs, raw_scores=call.raw_scores, truncate=call.truncate, timeout_s=timeout_s, field="inputs"
    )
    return Reply(
        len(inputs), result.token_count, result.timings, lambda: encode_labels(result, is_batch=is_batch)
    )


async def _predict_tokens(mill: Mill, call: PredictCall, timeout_s: float | None) -> Reply:
    texts, is_batch = call.texts()
    result = await mill.classify_tokens(
        texts, aggregate=call.aggregate, truncate=call.truncate, timeout_s=timeout_s, field="inputs"
    )
    return Reply(
        len(texts), result.token_count, result.timings, lambda: encode_entities(result, is_batch=is_batch)
    )


def read_embed_sparse(body: bytes) -> Asked:
    """Weights over the vocabulary."""
    call = decode_texts(body)

    async def answer(mill: Mill, timeout_s: float | None) -> Reply:
        result = await mill.embed_sparse(
            call.inputs,
            prompt_name=call.prompt_name,
            truncate=call.truncate,
            timeout_s=timeout_s,
            field="inputs",
        )
        return Reply(len(call.inputs), result.token_count, result.timings, lambda: encode_sparse(result))

    return Asked(call.model, (Task.SPARSE,), answer)


def read_embed_all(body: bytes) -> Asked:
    """A row for each token; `prompt_name` says whether the texts are queries or documents."""
    call = decode_texts(body)
    side = _read_side(call)

    async def answer(mill: Mill, timeout_s: float | None) -> Reply:
        result = await mill.embed_all(
            call.inputs, side=side, truncate=call.truncate, timeout_s=timeout_s, field="inputs"
        )
        return Reply(len(call.inputs), result.token_count, result.timings, lambda: encode_all(result))

    return Asked(call.model, (Task.MULTI_VECTOR,), answer)


def _read_side(call: TextsCall) -> Side:
    name = call.prompt_name
    if name is None:
        return Side.DOCUMENT
    if name not in tuple(Side):
        raise InvalidRequest('`prompt_name` must be "query" or "document".', field="prompt_name")
    return Side(name)


async def _send_error(error: VecmillError, scope: Scope, send: Send) -> None:
    response = tei_response(error)
    Exchange.of(scope).reason = response.reason
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})
