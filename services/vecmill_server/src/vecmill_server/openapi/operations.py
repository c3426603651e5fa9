"""The operations of the OpenAPI document: the parameters, body and responses of each method of a path."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vecmill_server.base.error_responses import ERROR_BODY, ERROR_SPECS, UNEXPECTED, error_body_at
from vecmill_server.base.json_schema import STRING, Component, Schema, any_of, like, word_pattern
from vecmill_server.base.settings import PRIORITIES
from vecmill_server.dialects.dialect import InferenceRoute, ResponseStyle
from vecmill_server.openapi.apis import Api
from vecmill_server.openapi.examples import apis_of, examples_of, tasks_of_route
from vecmill_server.openapi.response_headers import headers

# Operations by method and path.
Paths = Mapping[str, Mapping[str, dict[str, Any]]]

# The key of an operation that is the same as the operation of another path: that path.
ALIAS_OF = "x-alias-of"

# Errors of other operations, errors before routing, and errors at startup.
_NOT_OF_INFERENCE = frozenset(
    {
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
# Errors about the bytes of a body, raised before JSON is decoded, and unexpected errors.
_BEFORE_THE_DIALECT = frozenset(
    {"body_too_large", "request_timeout", "unsupported_encoding", UNEXPECTED.reason}
)

_UNKNOWN = ("x-unknown-fields",)
# Headers about the request, of all dialects.
_NOTICES = ("x-truncated-inputs", *_UNKNOWN)


def inference(path: str, route: InferenceRoute, parameters: Sequence[Schema]) -> dict[str, Any]:
    """Return the operation of an inference route at `path`, with the errors of each of its dialects."""
    styles = list(dict.fromkeys(body.style for body in route.bodies))
    responses = dict.fromkeys(response.name for body in route.bodies for response in body.responses)
    by_name = {response.name: response for body in route.bodies for response in body.responses}
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
            *parameters,
        ],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {
                "description": "Done",
                "content": as_json(done),
                "headers": headers((*(name for style in styles for name in style.header_names), *_NOTICES)),
            },
            **_inference_errors(path, styles),
        },
    }
    tasks = tasks_of_route(route)
    if tasks:
        operation["description"] = f"Needs a model with the task {_alternatives(tasks)}."
    return operation


def get(
    summary: str,
    content: Mapping[str, Any],
    *,
    errors: Mapping[str, str] | None = None,
    parameters: Sequence[Schema] = (),
    apis: Sequence[Api] = (Api.SERVER,),
) -> dict[str, Any]:
    """Return a GET operation. `errors` maps statuses other than 200 to their descriptions."""
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": list(apis),
        "responses": {
            "200": {"description": "Done", "content": content},
            **{status: describe_error(text) for status, text in (errors or {}).items()},
        },
    }
    return operation | {"parameters": list(parameters)} if parameters else operation


def at(*paths: str, **operations: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the same operations, by method, at each of `paths`. All but the first path are aliases."""
    main, *others = paths
    aliases = {method: {**operation, ALIAS_OF: main} for method, operation in operations.items()}
    return {main: dict(operations), **{path: dict(aliases) for path in others}}


def describe_error(description: str, bodies: Iterable[Component] = (ERROR_BODY,)) -> dict[str, Any]:
    """Return an error response with one of these bodies."""
    return {"description": description, "content": as_json(any_of(*bodies))}


def as_json(schema: Any) -> dict[str, Any]:
    """Return a JSON body of this schema."""
    return {"application/json": {"schema": like(schema)}}


def header_parameter(name: str, schema: Schema) -> dict[str, Any]:
    """Return an optional request header."""
    return {"name": name, "in": "header", "required": False, "schema": schema}


def path_parameter(name: str) -> dict[str, Any]:
    """Return a path parameter."""
    return {"name": name, "in": "path", "required": True, "schema": STRING}


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
        if spec.reason in _BEFORE_THE_DIALECT:
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
