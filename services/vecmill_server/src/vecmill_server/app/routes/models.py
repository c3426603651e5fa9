"""The routes about the served models: `/models` (OpenAI, Infinity), `/info` (TEI), `/api/tags` (Ollama)."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.config import OnLongInput
from vecmill.errors import NotReady
from vecmill.operations.answer_spaces import SPARSE, VECTORS
from vecmill.values.engine_plan import Precision
from vecmill.values.task import Task
from vecmill_server import __version__
from vecmill_server.app.openapi.operations import Api, Paths, as_json, at, describe_error, get, path_parameter
from vecmill_server.app.request_record import RequestContext
from vecmill_server.app.routes.accuracy import ACCURACY, REPORT, AccuracyReports, nullable_part
from vecmill_server.app.routes.model_entries import (
    LISTED_ENTRY,
    OLLAMA_ENTRY,
    PICTURES,
    RUNNING_ENTRY,
    describe_kind,
    describe_pictures,
    describe_queries,
    list_capabilities,
    list_outputs,
    list_picture_capabilities,
    listed_entry,
    ollama_entry,
    running_entry,
    xinference_fields,
)
from vecmill_server.base import json_schema
from vecmill_server.base.errors import ModelUnavailable
from vecmill_server.base.json_io import json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.catalog.catalog import ModelState, ServedModel
from vecmill_server.dialects.tei_bodies import TEI_STYLE
from vecmill_server.service.service import Service

# The time at which models are dropped that stay loaded; Ollama's clients read a time.
_NEVER = "9999-12-31T23:59:59+00:00"
# A longer time, of a thousand years, is no date that all clients can read.
_LONGEST_KEPT_S = 1000 * 366 * 86_400.0

# The states in which a model answers requests.
_ANSWERING = (ModelState.READY, ModelState.DEGRADED)
# TEI's names of precisions.
_DTYPES: Mapping[str, str] = MappingProxyType(
    {Precision.FP32: "float32", Precision.FP16: "float16", Precision.BF16: "bfloat16"}
)


# Those of OpenAI's clients, of Azure, of DeepInfra, of Alibaba and of Fireworks.
LIST_PATHS = (
    *("/v1/models", "/models", "/openai/v1/models", "/openai/models"),
    *("/v1/openai/models", "/compatible-mode/v1/models", "/inference/v1/models"),
)


def models_routes(service: Service) -> list[Route]:
    """Return the routes, which all accept GET."""
    models = Models(service)
    table = [
        ("info", "/models/info", models.azure_info),
        *(("models", path, models.list_all) for path in LIST_PATHS),
        *(("model", f"{path}/{{id:path}}", models.retrieve) for path in LIST_PATHS),
        ("info", "/info", models.info),
        ("accuracy", "/v1/accuracy/{id:path}", models.accuracy),
        ("tags", "/api/tags", models.tags),
        ("ps", "/api/ps", models.running),
        ("version", "/api/version", models.version),
        ("version", "/version", models.version),
    ]
    return [Route(path, endpoint, methods=["GET"], name=name) for name, path, endpoint in table]


class Models:
    """The endpoints that describe the served models."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._accuracy = AccuracyReports(service)
        self._created = int(service.wall_clock())
        self._modified = datetime.fromtimestamp(self._created, UTC).isoformat()

    async def list_all(self, request: Request) -> Response:
        """List all models, in the order of the command line, and then the aliases.

        `models` has the format of llama.cpp's server, and the fields that Cohere's clients read.
        """
        listed = self._service.catalog.listed()
        return json_response(
            {
                "object": "list",
                "data": [self._entry(model) for model in listed],
                "models": [listed_entry(model, self._modified) for model in listed],
            }
        )

    async def retrieve(self, request: Request) -> Response:
        """Describe one model, by any name that requests may use.

        For an alias, `id` is the alias and `root` is the name of the model.
        """
        return json_response(self._entry(self._service.catalog.describe(request.path_params["id"])))

    async def info(self, request: Request) -> Response:
        """Describe the first model in TEI's format; 503 with TEI's error body if it cannot answer."""
        RequestContext.of(request.scope).respond = TEI_STYLE.respond
        model = self._find_loaded(None)
        description, info, config = model.mill.description, model.mill.info, model.mill.config
        answer = {
            "model_id": model.name,
            "model_sha": None,
            "model_dtype": _DTYPES.get(info.precision, info.precision),
            "served_model_name": model.name,
            "model_type": describe_kind(description),
            "max_concurrent_requests": config.queue.max_queue_texts,
            "max_input_length": description.max_tokens,
            "max_batch_tokens": model.mill.batch_tokens,
            "max_batch_requests": None,
            "max_client_batch_size": config.inputs.max_inputs,
            "auto_truncate": config.inputs.on_long_input is OnLongInput.CUT,
            "tokenization_workers": 1,
            "version": __version__,
            "sha": None,
            "docker_label": None,
            "accuracy": await self._accuracy.read(model),
        }
        assumed = {"assumptions": list(description.assumptions)} if description.assumptions else {}
        return json_response(answer | describe_pictures(model) | assumed)

    async def azure_info(self, request: Request) -> Response:
        """Describe the first model in the format of Azure AI Foundry, whose client chooses a class by it."""
        model = self._service.catalog.resolve(None)
        kind = "embeddings" if model.task is Task.EMBED else str(model.task or "")
        return json_response({"model_name": model.name, "model_type": kind, "model_provider_name": "vecmill"})

    async def accuracy(self, request: Request) -> Response:
        """Report the measured accuracy of one model, by any name that requests may use."""
        model = self._find_loaded(request.path_params["id"])
        return json_response(await self._accuracy.read(model))

    def _find_loaded(self, name: str | None) -> ServedModel:
        """Return the model of a name, which is loaded or loading. Raises the errors of `resolve_serving`."""
        model = self._service.catalog.resolve_serving(name)
        if model.state is ModelState.FAILED:
            raise ModelUnavailable(f"The model `{model.name}` could not be loaded: {model.reason}")
        if model.state is ModelState.NOT_LOADED:
            raise ModelUnavailable(
                f"The model `{model.name}` is not loaded, and only what it computes has it loaded. Ask again "
                "after a request for embeddings or scores."
            )
        return model

    async def tags(self, request: Request) -> Response:
        """List all models and aliases in Ollama's format."""
        entries = [ollama_entry(model, self._modified) for model in self._service.catalog.listed()]
        # A name and an alias may differ only in their tag.
        return json_response({"models": list({entry["name"]: entry for entry in entries}.values())})

    async def running(self, request: Request) -> Response:
        """List the loaded models in Ollama's format."""
        loaded = [model for model in self._service.catalog if model.state in _ANSWERING]
        return json_response({"models": [running_entry(model, self._tell_expiry(model)) for model in loaded]})

    def _tell_expiry(self, model: ServedModel) -> str:
        """Return the time at which a loaded model is dropped, if no further request comes for it."""
        residency = self._service.catalog.residency
        if residency is None or model.resident is None:
            return _NEVER
        kept_s = residency.foresee_drop_s(model.resident)
        if kept_s > _LONGEST_KEPT_S:
            return _NEVER
        return datetime.fromtimestamp(self._service.wall_clock() + kept_s, UTC).isoformat()

    async def version(self, request: Request) -> Response:
        """Return the version of the server, which clients of Ollama and vLLM request."""
        return json_response({"version": __version__})

    def _entry(self, model: ServedModel) -> dict[str, object]:
        backlog = model.mill.backlog
        entry: dict[str, object] = {
            "id": model.name,
            "object": "model",
            "created": self._created,
            # Infinity's client accepts no other owner.
            "owned_by": "infinity",
            "root": self._service.catalog.resolve(model.name).name,
            "parent": None,
            "name": model.name,
            "model_name": model.name,
            "state": model.state,
            "stats": {
                "queue_fraction": backlog.texts / model.mill.config.queue.max_queue_texts,
                "queue_absolute": backlog.texts,
                "results_pending": backlog.texts,
                "batch_size": model.mill.batch_tokens,
            },
        }
        try:
            description, info, accuracy = model.mill.description, model.mill.info, model.mill.accuracy
            identity = model.mill.identity
        except NotReady:
            return entry
        return entry | {
            "task": description.task,
            "capabilities": [*list_capabilities(description.tasks), *list_picture_capabilities(description)],
            "max_model_len": description.max_tokens,
            "on_long_input": model.mill.config.inputs.on_long_input,
            "dim": description.dim,
            "backend": info.name,
            "engine": info.name,
            "precision": info.precision,
            "space": identity.space,
            "exact": identity.exact,
            **list_outputs(identity),
            "accuracy": None if accuracy is None else asdict(accuracy),
            **xinference_fields(description),
            **describe_queries(model),
            **describe_pictures(model),
        }


_ALWAYS = {
    "id": str,
    "object": "model",
    "created": int,
    "owned_by": str,
    "root": str,
    "parent": json_schema.OPTIONAL_STRING,
    "name": str,
    "model_name": str,
    "state": json_schema.described(json_schema.word(*map(str, ModelState)), "The same as at `/readyz`."),
    "stats": {"queue_fraction": float, "queue_absolute": int, "results_pending": int, "batch_size": int},
}
_WHEN_LOADED = {
    "task": json_schema.described(
        str, "The task. This and the following fields are absent while the model loads."
    ),
    "capabilities": [str],
    "max_model_len": json_schema.described(int, "The longest input, in tokens."),
    "on_long_input": json_schema.described(
        json_schema.word(*OnLongInput), "Whether longer inputs are cut, or refused, unless a request says."
    ),
    "dim": json_schema.described(int, "The number of dimensions, or of labels."),
    "backend": json_schema.described(str, "The engine."),
    "engine": json_schema.described(str, "The engine."),
    "precision": str,
    "space": json_schema.described(str, "Vectors of equal spaces are comparable."),
    "exact": json_schema.described(str, "The space and the way in which its vectors are computed."),
    "spaces": json_schema.an_object(
        (),
        dict.fromkeys((SPARSE, VECTORS), str),
        description="The spaces of further outputs, if there are any; otherwise absent.",
    ),
    "model_type": json_schema.described(str, "Xinference's name of the task."),
    "model_ability": [str],
    **dict.fromkeys(("dimensions", "max_tokens", "context_length"), int),
    "endpoints": json_schema.described([str], "The same as `capabilities`, for clients of Cohere."),
    "queries": json_schema.an_object(
        ("engine", "precision", "max_model_len"),
        {"engine": str, "precision": str, "max_model_len": int},
        description="How queries are embedded, if in another way than documents; otherwise absent.",
    ),
    "pictures": PICTURES,
    "default_input_type": json_schema.described(
        json_schema.OPTIONAL_STRING,
        "What texts without `input_type` are, if there is `queries`. If null, `input_type` is required.",
    ),
    "accuracy": nullable_part(
        ACCURACY, "Null if `vecmill optimize` has not measured this engine and precision."
    ),
}
_MODEL = Component("Model", json_schema.an_object(tuple(_ALWAYS), {**_ALWAYS, **_WHEN_LOADED}))
_LABELS = {
    "id2label": {"type": "object", "additionalProperties": json_schema.STRING},
    "label2id": {"type": "object", "additionalProperties": json_schema.COUNT},
}
_MODEL_TYPE = json_schema.an_object(
    (),
    {"embedding": {"pooling": str}, "reranker": _LABELS, "classifier": _LABELS},
    minProperties=1,
    maxProperties=1,
    description="An object with one of these keys.",
)
_INFO_ALWAYS = {
    **dict.fromkeys(("model_id", "model_dtype", "served_model_name", "version"), str),
    **dict.fromkeys(("model_sha", "sha", "docker_label"), json_schema.OPTIONAL_STRING),
    **dict.fromkeys(("max_concurrent_requests", "max_input_length", "max_batch_tokens"), int),
    **dict.fromkeys(("max_client_batch_size", "tokenization_workers"), int),
    "max_batch_requests": json_schema.nullable(int),
    "model_type": _MODEL_TYPE,
    "auto_truncate": bool,
    "accuracy": {"allOf": [REPORT], "description": "The same as at `/v1/accuracy/{id}`."},
}
_ASSUMPTIONS = json_schema.described(
    [str], "What the files of the model do not say, in sentences, if there is any; otherwise absent."
)
_INFO = Component(
    "Info",
    json_schema.an_object(
        tuple(_INFO_ALWAYS), {**_INFO_ALWAYS, "pictures": PICTURES, "assumptions": _ASSUMPTIONS}
    ),
)


def _describe_info() -> dict[str, object]:
    operation = get("The first model, in TEI's format", as_json(_INFO), apis=(Api.TEI,))
    operation["responses"]["503"] = describe_error("The model is loading", (TEI_STYLE.error_body,))
    return operation


_APIS_WITH_MODELS = (Api.OPENAI, Api.MISTRAL, Api.INFINITY, Api.VLLM)
PATHS: Paths = {
    **at(
        *LIST_PATHS,
        get=get(
            "The served models",
            as_json(Component("ModelList", {"object": "list", "data": [_MODEL], "models": [LISTED_ENTRY]})),
            apis=_APIS_WITH_MODELS,
        ),
    ),
    **at(
        *(f"{path}/{{id}}" for path in LIST_PATHS),
        get=get(
            "One model",
            as_json(_MODEL),
            errors={"404": "No model has that name"},
            parameters=[path_parameter("id")],
            apis=_APIS_WITH_MODELS,
        ),
    ),
    "/info": {"get": _describe_info()},
    "/models/info": {
        "get": get(
            "The first model, in the format of Azure AI Foundry",
            as_json(
                Component(
                    "AzureModelInfo", dict.fromkeys(("model_name", "model_type", "model_provider_name"), str)
                )
            ),
            apis=(Api.AZURE,),
        )
    },
    "/api/tags": {
        "get": get(
            "The served models, in Ollama's format",
            as_json(Component("OllamaTags", {"models": [OLLAMA_ENTRY]})),
            apis=(Api.OLLAMA,),
        )
    },
    "/api/ps": {
        "get": get(
            "The loaded models, in Ollama's format",
            as_json(Component("OllamaProcesses", {"models": [RUNNING_ENTRY]})),
            apis=(Api.OLLAMA,),
        )
    },
    **at(
        "/api/version",
        "/version",
        get=get(
            "The version",
            as_json(Component("OllamaVersion", {"version": str})),
            apis=(Api.OLLAMA, Api.VLLM),
        ),
    ),
}
