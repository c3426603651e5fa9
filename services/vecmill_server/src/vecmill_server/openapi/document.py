"""The assembly of the OpenAPI document for a server's settings."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vecmill_server import __version__
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.json_schema import Component, like
from vecmill_server.middleware.keys import requires_key
from vecmill_server.openapi.operations import Paths, describe_error, inference, path_parameter
from vecmill_server.openapi.response_headers import describe_headers, with_headers
from vecmill_server.routes import batches, docs, health, llama_server, models, prometheus
from vecmill_server.settings import ServerSettings

_PATH_PARAMETER = re.compile(r"{(\w+):path}")


def describe_api(settings: ServerSettings) -> dict[str, Any]:
    """Return the OpenAPI document for a server with these settings."""
    schemas = SchemaCollection(settings)
    paths: dict[str, Any] = schemas.resolve(describe_paths())
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {
            "title": "vecmill",
            "version": __version__,
            "description": "Embeddings, reranking and classification. Unknown fields are ignored; "
            "null means absent. Some models refuse fields that are marked x-depends-on-model.",
        },
        "servers": [{"url": settings.url_prefix or "/"}],
        "paths": _with_keys(settings, paths),
        "components": {"schemas": schemas.by_name, "headers": describe_headers()},
    }
    if settings.has_api_keys or settings.metrics_key:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "api-key"},
        }
        document["paths"] = schemas.resolve(document["paths"])
    document["paths"] = {
        path: {method: with_headers(operation) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    return document


def describe_paths() -> Paths:
    """Return every operation of the server. Raises `ValueError` if an operation is described twice."""
    paths: dict[str, dict[str, Any]] = {}
    inference_paths = {
        _PATH_PARAMETER.sub(r"{\1}", path): {
            "post": inference(route, [path_parameter(name) for name in _PATH_PARAMETER.findall(path)])
        }
        for path, route in routes_by_path().items()
    }
    for group in (
        inference_paths,
        batches.PATHS,
        models.PATHS,
        health.PATHS,
        llama_server.PATHS,
        prometheus.PATHS,
        docs.PATHS,
    ):
        for path, operations in group.items():
            known = paths.setdefault(path, {})
            if known.keys() & operations.keys():
                raise ValueError(f"{path} is described twice")
            known.update(operations)
    return paths


class SchemaCollection:
    """The named schemas of the document, collected from the references to them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.by_name: dict[str, Any] = {}
        self._settings = settings

    def resolve(self, value: Any) -> Any:
        """Return `value` with references in place of components. Raises `ValueError` if two share a name."""
        if isinstance(value, Component):
            return self._refer(value)
        if callable(value):
            return self.resolve(value(self._settings))
        if isinstance(value, Mapping):
            return {name: self.resolve(item) for name, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self.resolve(item) for item in value]
        return value

    def _refer(self, component: Component) -> dict[str, str]:
        schema, name = self.resolve(like(component.schema)), component.name
        if self.by_name.setdefault(name, schema) != schema:
            raise ValueError(f"two schemas have the name {name}")
        return {"$ref": f"#/components/schemas/{name}"}


def _with_keys(settings: ServerSettings, paths: dict[str, Any]) -> dict[str, Any]:
    return {
        path: {
            method: _with_key(operation) if requires_key(settings, method.upper(), path) else operation
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }


def _with_key(operation: dict[str, Any]) -> dict[str, Any]:
    scheme = {"schema": {"type": "string", "enum": ["Bearer"]}}
    refused = {**describe_error("invalid_key"), "headers": {"www-authenticate": scheme}}
    responses = {"401": refused, **operation["responses"]}
    return {**operation, "security": [{"bearer": []}, {"header": []}], "responses": responses}
