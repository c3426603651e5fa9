"""The models in the format of Pinecone's inference API.

Requests for `/models` with the header of Pinecone's client are passed on to these paths
(`app.request_options`).
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.task import Task
from vecmill_server.app.openapi.operations import Api, Paths, as_json, get, path_parameter
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.dialects.pinecone import PREFIX
from vecmill_server.service.service import Service

_LIST_PATH = f"{PREFIX}/models"
_VECTOR_TYPES = {Task.EMBED: "dense", Task.SPARSE: "sparse"}
_TRUNCATE = {
    "parameter": "truncate",
    "type": "one_of",
    "value_type": "string",
    "required": False,
    "allowed_values": ["END", "START", "NONE"],
}
_INPUT_TYPE = {**_TRUNCATE, "parameter": "input_type", "allowed_values": ["query", "passage"]}


def pinecone_models_routes(service: Service) -> list[Route]:
    """Return the routes, which accept GET."""
    catalog = service.catalog

    async def list_all(request: Request) -> Response:
        """List the models, of the type and the vector type that the query asks for."""
        asked = {name: request.query_params.get(name) for name in ("type", "vector_type")}
        entries = [_describe(model) for model in catalog.listed()]
        found = [
            each
            for each in entries
            if all(value is None or each[name] == value for name, value in asked.items())
        ]
        return json_response({"models": found})

    async def retrieve(request: Request) -> Response:
        """Describe one model, by any name that requests may use."""
        return json_response(_describe(catalog.describe(request.path_params["id"])))

    return [
        Route(_LIST_PATH, list_all, methods=["GET"], name="models"),
        Route(f"{_LIST_PATH}/{{id:path}}", retrieve, methods=["GET"], name="model"),
    ]


def _describe(model: ServedModel) -> dict[str, object]:
    """Return the entry of a model. Until its settings are read, its type is empty."""
    task = model.task
    vector_type = None if task is None else _VECTOR_TYPES.get(task)
    limits = model.mill.config.inputs
    return {
        "model": model.name,
        "short_description": "",
        "type": "embed" if vector_type else str(task or ""),
        "vector_type": vector_type,
        "default_dimension": model.mill.description.dim if task is Task.EMBED else None,
        "modality": "text",
        "max_sequence_length": None if task is None else model.mill.description.max_tokens,
        "max_batch_size": limits.max_inputs,
        "provider_name": "vecmill",
        "supported_parameters": [_TRUNCATE, *((_INPUT_TYPE,) if vector_type else ())],
    }


_OPTIONAL_COUNT = json_schema.nullable(int)
_OF_PARAMETER = {
    **dict.fromkeys(("parameter", "type", "value_type"), str),
    "required": bool,
    "allowed_values": [str],
}
_PARAMETER = json_schema.an_object(tuple(_OF_PARAMETER), _OF_PARAMETER)
_MODEL = Component(
    "PineconeModel",
    {
        **dict.fromkeys(("model", "short_description", "type", "modality", "provider_name"), str),
        "vector_type": json_schema.OPTIONAL_STRING,
        **dict.fromkeys(("default_dimension", "max_sequence_length"), _OPTIONAL_COUNT),
        "max_batch_size": int,
        "supported_parameters": [_PARAMETER],
    },
)
_FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "string", "enum": list(words)}}
    for name, words in (("type", ("embed", "rerank")), ("vector_type", ("dense", "sparse")))
]

PATHS: Paths = {
    _LIST_PATH: {
        "get": get(
            "The served models, in Pinecone's format",
            as_json(Component("PineconeModelList", {"models": [_MODEL]})),
            parameters=_FILTERS,
            apis=(Api.PINECONE,),
        )
    },
    f"{_LIST_PATH}/{{id}}": {
        "get": get(
            "One model, in Pinecone's format",
            as_json(_MODEL),
            errors={"404": "No model has that name"},
            parameters=[path_parameter("id")],
            apis=(Api.PINECONE,),
        )
    },
}
