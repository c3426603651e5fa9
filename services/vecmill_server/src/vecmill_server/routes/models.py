"""Which models are served: to OpenAI's clients and Infinity's, TEI's `/info`, Ollama's `/api/tags`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.errors import NotReady
from vecmill.models import ModelDescription, Task
from vecmill.models.stages import Pooling
from vecmill.plan import Precision
from vecmill.tuning.figures import Accuracy
from vecmill_server import __version__
from vecmill_server.catalog import ServedModel
from vecmill_server.documents import encode_json
from vecmill_server.exchange import Exchange
from vecmill_server.problems import tei_response
from vecmill_server.service import Service

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

# What TEI calls the precisions that it has.
_DTYPES: Mapping[str, str] = MappingProxyType(
    {Precision.FP32: "float32", Precision.FP16: "float16", Precision.BF16: "bfloat16"}
)


def models_routes(service: Service) -> list[Route]:
    """All of them read alone."""
    models = Models(service)
    table = [
        ("models", "/v1/models", models.list_all),
        ("models", "/models", models.list_all),
        ("model", "/v1/models/{id:path}", models.retrieve),
        ("model", "/models/{id:path}", models.retrieve),
        ("info", "/info", models.info),
        ("tags", "/api/tags", models.tags),
        ("version", "/api/version", models.version),
    ]
    return [Route(path, endpoint, methods=["GET"], name=name) for name, path, endpoint in table]


class Models:
    """GET: what is known of the models that are served."""

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

    async def info(self, request: Request) -> Response:
        """The first model, as TEI describes its only one; 503 in TEI's words while it loads."""
        try:
            return _json(self._info())
        except NotReady as error:
            problem = tei_response(error)
            Exchange.of(request.scope).reason = problem.reason
            answer = Response(problem.body, problem.status)
            answer.raw_headers = problem.headers
            return answer

    def _info(self) -> dict[str, object]:
        model = next(iter(self._service.catalog))
        description, info, config = model.mill.description, model.mill.info, model.mill.config
        return {
            "model_id": model.name,
            "model_sha": None,
            "model_dtype": _DTYPES.get(info.precision, info.precision),
            "served_model_name": model.name,
            "model_type": _model_type(description),
            "max_concurrent_requests": config.queue.max_queue_texts,
            "max_input_length": description.max_tokens,
            "max_batch_tokens": _batch_tokens(model),
            "max_batch_requests": None,
            "max_client_batch_size": config.inputs.max_inputs,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }

    async def tags(self, request: Request) -> Response:
        """All models, as Ollama lists what it has pulled."""
        modified = datetime.fromtimestamp(self._created, UTC).isoformat()
        return _json(
            {"models": [_tag(model, modified) for model in self._service.catalog]},
        )

    async def version(self, request: Request) -> Response:
        """Our version, where Ollama's clients ask for one."""
        return _json({"version": __version__})

    def _entry(self, model: ServedModel) -> dict[str, object]:
        backlog = model.mill.backlog
        entry: dict[str, object] = {
            "id": model.name,
            "object": "model",
            "created": self._created,
            # Infinity's client takes no other owner.
            "owned_by": "infinity",
            "root": model.name,
            "parent": None,
            "stats": {
                "queue_fraction": backlog.texts / model.mill.config.queue.max_queue_texts,
                "queue_absolute": backlog.texts,
                "results_pending": backlog.texts,
                "batch_size": _batch_tokens(model),
            },
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


def _batch_tokens(model: ServedModel) -> int:
    """How many tokens one engine call may hold; while the model loads, as far as it is known."""
    config = model.mill.config
    with suppress(NotReady):
        config = config.sized_for(model.mill.info)
    return config.batch.batch_tokens


def _model_type(description: ModelDescription) -> dict[str, object]:
    if description.task in (Task.EMBED, Task.SPARSE, Task.MULTI_VECTOR):
        pooling = "splade" if description.task is Task.SPARSE else _pooling(description)
        return {"embedding": {"pooling": pooling}}
    labels = description.head.labels if description.head is not None else ()
    by_name = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    return {"reranker" if description.task is Task.RERANK else "classifier": by_name}


def _pooling(description: ModelDescription) -> str:
    """How one row is made of many; `mean` is what most do."""
    modes = [stage.modes for stage in description.stages if isinstance(stage, Pooling)]
    return str(modes[0][0]) if modes else "mean"


def _tag(model: ServedModel, modified: str) -> dict[str, object]:
    architecture = "unknown" if model.task is None else model.mill.description.architecture
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": modified,
        "size": 0,
        "digest": "",
        "details": {
            "parent_model": "",
            "format": "safetensors",
            "family": architecture,
            "families": [architecture],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _accuracy(found: Accuracy | None) -> dict[str, object] | None:
    """What was measured of the engine and precision that are served, if it was."""
    return None if found is None else asdict(found)


def _json(value: object) -> Response:
    return Response(encode_json(value), media_type="application/json")
