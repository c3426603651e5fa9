"""`/embeddings` and `/models`, as OpenAI's clients know them."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.errors import NotReady
from vecmill.models import Task
from vecmill.tuning.figures import Accuracy
from vecmill_server.catalog import ServedModel
from vecmill_server.exchange import Exchange, send_json, timing_headers
from vecmill_server.routes.work import LARGE_ROWS, read_call, run_off_loop, unless_client_leaves
from vecmill_server.service import Service
from vecmill_server.wire import Envelope, decode_embeddings, encode_embeddings, encode_json

# What clients may ask of a model, by the names of Infinity's routes.
CAPABILITIES: Mapping[Task, tuple[str, ...]] = MappingProxyType(
    {
        Task.EMBED: ("embed", "rerank"),
        Task.RERANK: ("rerank",),
        Task.CLASSIFY: ("classify",),
        Task.CLASSIFY_TOKENS: ("classify_tokens",),
        Task.SPARSE: ("embed_sparse", "rerank"),
        Task.MULTI_VECTOR: ("embed_all", "rerank"),
    }
)


def openai_routes(service: Service) -> list[Route]:
    """The routes of this family, at the root and under `/v1`."""
    embeddings, models = Embeddings(service), Models(service)
    return [
        Route("/v1/embeddings", embeddings, methods=["POST"], name="embeddings"),
        Route("/embeddings", embeddings, methods=["POST"], name="embeddings"),
        Route("/v1/models", models.list_all, methods=["GET"], name="models"),
        Route("/models", models.list_all, methods=["GET"], name="models"),
        Route("/v1/models/{id:path}", models.retrieve, methods=["GET"], name="model"),
        Route("/models/{id:path}", models.retrieve, methods=["GET"], name="model"),
    ]


class Embeddings:
    """POST: texts to rows. An ASGI application rather than a function, which saves a request object."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, exchange = self._service, Exchange.of(scope)
        asked = await read_call(
            service, scope, receive, lambda body: decode_embeddings(body, service.settings.token_ids)
        )
        call = asked.call
        model = service.catalog.resolve(call.model, (Task.EMBED,))
        exchange.texts = len(call.inputs)
        result = await unless_client_leaves(
            model.mill.submit(call.request(timeout_s=asked.timeout_s)), receive
        )
        exchange.tokens = result.token_count
        envelope = Envelope(exchange.request_id, model.name, int(service.wall_clock()))
        answer = await run_off_loop(
            len(result.rows) > LARGE_ROWS, lambda: encode_embeddings(result, envelope, base64=call.base64)
        )
        await send_json(send, answer, timing_headers(result.timings))


class Models:
    """GET: which models there are, and one of them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(service.wall_clock())

    async def list_all(self, request: Request) -> Response:
        """All models, in the order given at the start."""
        entries = [self._entry(model) for model in self._service.catalog]
        return _json({"object": "list", "data": entries})

    async def retrieve(self, request: Request) -> Response:
        """One model, by any name that requests may use."""
        return _json(self._entry(self._service.catalog.resolve(request.path_params["id"])))

    def _entry(self, model: ServedModel) -> dict[str, object]:
        entry: dict[str, object] = {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "vecmill",
            "root": model.name,
            "parent": None,
        }
        try:
            description, info = model.mill.description, model.mill.info
        except NotReady:
            return entry
        return entry | {
            "task": description.task,
            "capabilities": CAPABILITIES[description.task],
            "max_model_len": description.max_tokens,
            "dim": description.dim,
            "backend": info.name,
            "engine": info.name,
            "precision": info.precision,
            "accuracy": _accuracy(model.mill.accuracy),
        }


def _accuracy(found: Accuracy | None) -> dict[str, object] | None:
    """What was measured of the engine and precision that are served, if it was."""
    return None if found is None else asdict(found)


def _json(value: object) -> Response:
    return Response(encode_json(value), media_type="application/json")
