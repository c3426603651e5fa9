"""The OpenAPI document: all families put together, with what the server's settings say."""

from collections.abc import Callable
from typing import Any

from vecmill_server import __version__
from vecmill_server.middleware.keys import is_public
from vecmill_server.openapi.batches import describe_batches
from vecmill_server.openapi.cohere import describe_cohere
from vecmill_server.openapi.fields import describe_fields
from vecmill_server.openapi.headers import describe_headers, with_headers
from vecmill_server.openapi.hugging_face import describe_hugging_face
from vecmill_server.openapi.models import describe_models
from vecmill_server.openapi.ollama import describe_ollama
from vecmill_server.openapi.openai import describe_openai
from vecmill_server.openapi.operations import describe_problems, problem_response
from vecmill_server.openapi.probes import describe_probes
from vecmill_server.openapi.rerank import describe_rerank
from vecmill_server.openapi.tei import describe_tei
from vecmill_server.openapi.vllm import describe_vllm
from vecmill_server.openapi.vocabulary import Family
from vecmill_server.settings import ServerSettings

# A new family of routes is one more of these.
FAMILIES: tuple[Callable[[ServerSettings], Family], ...] = (
    describe_openai,
    describe_rerank,
    describe_cohere,
    describe_tei,
    describe_vllm,
    describe_ollama,
    describe_hugging_face,
    describe_batches,
    describe_models,
    describe_probes,
)


def describe_api(settings: ServerSettings) -> dict[str, Any]:
    """The OpenAPI document for a server with these settings."""
    families = [describe(settings) for describe in FAMILIES]
    schemas = [
        describe_problems().schemas,
        describe_fields().schemas,
        *(family.schemas for family in families),
    ]
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {
            "title": "vecmill",
            "version": __version__,
            "description": "Embeddings, reranking and classification. Unknown fields are ignored; "
            "null means absent. What is marked x-depends-on-model may be refused by some models.",
        },
        "servers": [{"url": settings.url_prefix or "/"}],
        "paths": _merge(families),
        "components": {
            "schemas": {name: schema for part in schemas for name, schema in part.items()},
            "headers": describe_headers(),
        },
    }
    if settings.api_key:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "api-key"},
        }
        document["paths"] = _with_keys(document["paths"])
    document["paths"] = {
        path: {method: with_headers(operation) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    return document


def _merge(families: list[Family]) -> dict[str, Any]:
    """The paths of all; two families may share one, each with its own methods."""
    paths: dict[str, Any] = {}
    for family in families:
        for path, operations in family.paths.items():
            paths[path] = {**paths.get(path, {}), **operations}
    return paths


def _with_keys(paths: dict[str, Any]) -> dict[str, Any]:
    return {
        path: {
            method: operation if is_public(method.upper(), path) else _with_key(operation)
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }


def _with_key(operation: dict[str, Any]) -> dict[str, Any]:
    scheme = {"schema": {"type": "string", "enum": ["Bearer"]}}
    refused = {**problem_response("invalid_key"), "headers": {"www-authenticate": scheme}}
    responses = {"401": refused, **operation["responses"]}
    return {**operation, "security": [{"bearer": []}, {"header": []}], "responses": responses}
