"""The assembly of the OpenAPI document for a server's settings."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vecmill_server import __version__
from vecmill_server.app.openapi.examples import apis_of, examples_of, tasks_of_route
from vecmill_server.app.openapi.operations import (
    ALIAS_OF,
    Api,
    Paths,
    as_bytes,
    as_json,
    describe_error,
    describe_headers,
    header_parameter,
    headers,
    path_parameter,
    with_headers,
)
from vecmill_server.base.error_responses import ERROR_SPECS, UNEXPECTED, error_body_at
from vecmill_server.base.json_schema import STRING, Component, Schema, any_of, like, word_pattern
from vecmill_server.base.settings import PRIORITIES, ServerSettings
from vecmill_server.dialects.dialect import InferenceRoute, ResponseStyle
from vecmill_server.dialects.dialect_routes import main_paths, routes_by_path
from vecmill_server.dialects.raw_bytes import METADATA
from vecmill_server.dialects.space_headers import EXPECTED_SPACE, SPACE_PATTERN
from vecmill_server.service.api_keys import requires_key

_PATH_PARAMETER = re.compile(r"{(\w+):path}")
# The path parameters that name a model.
_MODEL_PARAMETER = re.compile(r"/(?:accuracy|deployments|inference|models|retrieval)/{(\w+)}")

# Errors of other operations, errors before routing, and errors at startup.
_NOT_OF_INFERENCE = frozenset(
    {
        "admin_required",
        "batches_off",
        "conflict",
        "foreign_host",
        "foreign_origin",
        "headers_too_large",
        "invalid_key",
        "method_not_allowed",
        "setup",
        "storage_full",
        "unknown_object",
        "unknown_route",
    }
)
# Errors about the bytes of a body, raised before JSON is decoded.
_BEFORE_THE_DIALECT = frozenset({"body_too_large", "request_timeout", "unsupported_encoding"})
_UNKNOWN = ("x-unknown-fields",)
# Headers about the request, of all dialects.
_NOTICES = (
    "x-space",
    "x-space-exact",
    "x-prompt-name",
    "x-truncated-inputs",
    "x-truncated",
    "x-cached-inputs",
    *_UNKNOWN,
)


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
            "whose clients send them. Unknown fields are ignored, and named in the header x-unknown-fields; null "
            "means absent. Some models refuse fields that are marked x-depends-on-model.",
        },
        "servers": [{"url": settings.url_prefix or "/"}],
        "tags": [{"name": api, "description": api.note} for api in Api if api in used],
        "paths": _with_keys(settings, paths),
        "components": {"schemas": schemas.by_name, "headers": describe_headers()},
    }
    if settings.has_api_keys or settings.metrics_key:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "api-key"},
        }
        document["paths"] = schemas.resolve(document["paths"])
    document["paths"] = _change(document["paths"], lambda _path, _method, operation: with_headers(operation))
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


_PLAIN = (str, int, float, type(None))


class SchemaCollection:
    """The named schemas of the document, collected from the references to them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.by_name: dict[str, Any] = {}
        self._components: dict[str, Component] = {}
        self._settings = settings

    def resolve(self, value: Any) -> Any:
        """Return `value` with references in place of components. Raises `ValueError` if two share a name."""
        if isinstance(value, _PLAIN):  # most values are
            return value
        if isinstance(value, Component):
            return self._refer(value)
        if callable(value):
            return self.resolve(value(self._settings))
        if isinstance(value, Mapping):
            return {name: self.resolve(item) for name, item in value.items()}
        if isinstance(value, Sequence):
            return [self.resolve(item) for item in value]
        return value

    def _refer(self, component: Component) -> dict[str, str]:
        name = component.name
        known = self._components.get(name)
        if known is None or known.schema != component.schema:  # most are referred to often
            schema = self.resolve(like(component.schema))
            if self.by_name.setdefault(name, schema) != schema:
                raise ValueError(f"two schemas have the name {name}")
            self._components[name] = component
        return {"$ref": f"#/components/schemas/{name}"}


def _inference_paths() -> Paths:
    mains = main_paths()
    paths: dict[str, dict[str, Any]] = {}
    for path, route in routes_by_path().items():
        parameters = [path_parameter(name) for name in _PATH_PARAMETER.findall(path)]
        operation = _describe_inference(path, route, parameters)
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


def _change(paths: Paths, change: Callable[[str, str, dict[str, Any]], dict[str, Any]]) -> Paths:
    """Return the operations as `change` returns each, given its path and its method."""
    return {
        path: {method: change(path, method, operation) for method, operation in operations.items()}
        for path, operations in paths.items()
    }


def _fold_aliases(paths: Paths) -> Paths:
    """Return the operations with aliases in a group of their own, listed where they lead."""
    aliases: dict[tuple[str, str], list[str]] = {}
    for path, method, operation in _operations(paths):
        if ALIAS_OF in operation:
            aliases.setdefault((operation[ALIAS_OF], method), []).append(path)

    def fold(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
        if ALIAS_OF in operation:
            text = f"The same as `{operation[ALIAS_OF]}`."
            return {**operation, "tags": [Api.OTHER_PATHS], "description": text}
        others = aliases.get((path, method))
        if not others:
            return operation
        also = f"Other paths: {', '.join(f'`{other}`' for other in others)}."
        return {**operation, "description": f"{operation.get('description', '')} {also}".strip()}

    return _change(paths, fold)


def _with_model(model: str | None, paths: Paths) -> Paths:
    """Return the operations with `model` as the example of path parameters that name a model."""
    if model is None:
        return paths

    def name_model(path: str, _method: str, operation: dict[str, Any]) -> dict[str, Any]:
        found = _MODEL_PARAMETER.search(path)
        name = None if found is None else found[1]
        parameters = [
            {**each, "example": model} if each["in"] == "path" and each["name"] == name else each
            for each in operation.get("parameters", ())
        ]
        return operation | ({"parameters": parameters} if parameters else {})

    return _change(paths, name_model)


def _with_keys(settings: ServerSettings, paths: Paths) -> Paths:
    """Return the operations with the keys that they require."""

    def add_key(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
        if not requires_key(settings, method.upper(), path):
            return operation
        scheme = {"schema": {"type": "string", "enum": ["Bearer"]}}
        refused = {
            **describe_error("invalid_key", (error_body_at(path),)),
            "headers": {"www-authenticate": scheme},
        }
        responses = {"401": refused, **operation["responses"]}
        return {**operation, "security": [{"bearer": []}, {"header": []}], "responses": responses}

    return _change(paths, add_key)


def _describe_inference(path: str, route: InferenceRoute, parameters: Sequence[Schema]) -> dict[str, Any]:
    """Return the operation of an inference route at `path`, with the errors of each of its dialects."""
    styles = list(dict.fromkeys(body.style for body in route.bodies))
    responses = dict.fromkeys(response.name for body in route.bodies for response in body.responses)
    by_name = {response.name: response for body in route.bodies for response in body.responses}
    names = [name for style in styles for name in style.header_names]
    may_be_raw = any(body.may_be_raw for body in route.bodies)
    done = any_of(*(by_name[name] for name in responses))
    content = as_json(any_of(*(body.component() for body in route.bodies)))
    content["application/json"]["examples"] = {
        name: {"value": example} for name, example in examples_of(route).items()
    }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "tags": apis_of(path, route),
        "parameters": [
            header_parameter(
                "x-request-timeout-ms", {"type": "integer", "minimum": 1, "maximum": 999_999_999}
            ),
            header_parameter("x-request-id", STRING),
            header_parameter("x-priority", {**STRING, "pattern": word_pattern(tuple(PRIORITIES))}),
            header_parameter(EXPECTED_SPACE, {**STRING, "pattern": SPACE_PATTERN}),
            *parameters,
        ],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {
                "description": "Done",
                "content": as_json(done) | (as_bytes() if may_be_raw else {}),
                "headers": headers((*names, *_NOTICES, *((METADATA,) if may_be_raw else ()))),
            },
            **_inference_errors(path, styles),
        },
    }
    tasks = tasks_of_route(route)
    if tasks:
        operation["description"] = f"Needs a model with the task {_alternatives(tasks)}."
    return operation


def _alternatives(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _inference_errors(path: str, styles: Sequence[ResponseStyle]) -> dict[str, Any]:
    """Return the error responses of inference at `path` in these styles, by status."""
    reasons: dict[str, set[str]] = {}
    bodies: dict[str, dict[str, Component]] = {}
    for spec in (*ERROR_SPECS.values(), UNEXPECTED):
        if spec.reason in _NOT_OF_INFERENCE:
            continue
        answers = [(style.status_of(spec), style.error_body) for style in styles]
        if spec is UNEXPECTED or (spec.reason in _BEFORE_THE_DIALECT and len(styles) > 1):
            answers = [(spec.status, error_body_at(path))]
        for status, body in answers:
            reasons.setdefault(str(status), set()).add(spec.reason)
            bodies.setdefault(str(status), {})[body.name] = body
    return {
        status: {
            **describe_error(", ".join(sorted(names)), (body for _, body in sorted(bodies[status].items()))),
            "headers": headers(_UNKNOWN),
        }
        for status, names in sorted(reasons.items())
    }
