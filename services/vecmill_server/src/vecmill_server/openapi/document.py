"""The assembly of the OpenAPI document for a server's settings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vecmill_server import __version__
from vecmill_server.base.error_responses import error_body_at
from vecmill_server.base.json_schema import Component, like
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect_routes import main_paths, routes_by_path
from vecmill_server.openapi.apis import API_NOTES, Api
from vecmill_server.openapi.operations import ALIAS_OF, Paths, describe_error, inference, path_parameter
from vecmill_server.openapi.response_headers import describe_headers, with_headers
from vecmill_server.service.public_paths import requires_key

_PATH_PARAMETER = re.compile(r"{(\w+):path}")
# The path parameters that name a model.
_MODEL_PARAMETER = re.compile(r"/(?:deployments|inference|models)/{(\w+)}")


def describe_api(
    settings: ServerSettings, others: Sequence[Paths], model: str | None = None
) -> dict[str, Any]:
    """Return the OpenAPI document for a server with these settings.

    `others` are the operations beside inference, by path. `model` is the name of a served model, for
    examples.
    """
    schemas = SchemaCollection(settings)
    paths: dict[str, Any] = schemas.resolve(_with_model(model, _fold_aliases(describe_paths(others))))
    used = {tag for _, _, operation in _operations(paths) for tag in operation["tags"]}
    document: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {
            "title": "vecmill",
            "version": __version__,
            "description": "Embeddings, reranking and classification. Operations are grouped by the APIs "
            "whose clients send them. Unknown fields are ignored; null means absent. Some models refuse "
            "fields that are marked x-depends-on-model.",
        },
        "servers": [{"url": settings.url_prefix or "/"}],
        "tags": [{"name": api, "description": API_NOTES[api]} for api in Api if api in used],
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


def describe_paths(others: Sequence[Paths]) -> Paths:
    """Return every operation of the server: inference, and `others`.

    Raises `ValueError` if an operation is described twice.
    """
    paths: dict[str, dict[str, Any]] = {}
    for group in (_inference_paths(), *others):
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


def _inference_paths() -> Paths:
    mains = main_paths()
    paths: dict[str, dict[str, Any]] = {}
    for path, route in routes_by_path().items():
        parameters = [path_parameter(name) for name in _PATH_PARAMETER.findall(path)]
        operation = inference(path, route, parameters)
        if mains[path] != path:
            operation[ALIAS_OF] = _template(mains[path])
        paths[_template(path)] = {"post": operation}
    return paths


def _template(path: str) -> str:
    """Return the path of a route in OpenAPI's form."""
    return _PATH_PARAMETER.sub(r"{\1}", path)


def _operations(paths: Paths) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return the path, the method and the description of each operation."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            yield path, method, operation


def _fold_aliases(paths: Paths) -> Paths:
    """Return the operations with aliases in a group of their own, listed where they lead."""
    aliases: dict[tuple[str, str], list[str]] = {}
    for path, method, operation in _operations(paths):
        if ALIAS_OF in operation:
            aliases.setdefault((operation[ALIAS_OF], method), []).append(path)
    folded: dict[str, dict[str, Any]] = {}
    for path, method, operation in _operations(paths):
        changed: dict[str, Any] = {}
        if ALIAS_OF in operation:
            changed = {"tags": [Api.OTHER_PATHS], "description": f"The same as `{operation[ALIAS_OF]}`."}
        elif others := aliases.get((path, method)):
            also = f"Other paths: {', '.join(f'`{other}`' for other in others)}."
            changed = {"description": f"{operation.get('description', '')} {also}".strip()}
        folded.setdefault(path, {})[method] = {**operation, **changed}
    return folded


def _with_model(model: str | None, paths: Paths) -> Paths:
    """Return the operations with `model` as the example of path parameters that name a model."""
    if model is None:
        return paths
    changed: dict[str, dict[str, Any]] = {}
    for path, method, operation in _operations(paths):
        found = _MODEL_PARAMETER.search(path)
        name = None if found is None else found[1]
        parameters = [
            {**each, "example": model} if each["in"] == "path" and each["name"] == name else each
            for each in operation.get("parameters", ())
        ]
        changed.setdefault(path, {})[method] = operation | ({"parameters": parameters} if parameters else {})
    return changed


def _with_keys(settings: ServerSettings, paths: dict[str, Any]) -> dict[str, Any]:
    return {
        path: {
            method: _with_key(path, operation) if requires_key(settings, method.upper(), path) else operation
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }


def _with_key(path: str, operation: dict[str, Any]) -> dict[str, Any]:
    scheme = {"schema": {"type": "string", "enum": ["Bearer"]}}
    refused = {
        **describe_error("invalid_key", (error_body_at(path),)),
        "headers": {"www-authenticate": scheme},
    }
    responses = {"401": refused, **operation["responses"]}
    return {**operation, "security": [{"bearer": []}, {"header": []}], "responses": responses}
