"""Operations: what a method of a path takes, and every response that it can give, its errors included."""

from collections.abc import Mapping, Sequence
from typing import Any

from vecmill_server.openapi.headers import OUR_TIMINGS, TEI_TIMINGS, headers
from vecmill_server.openapi.vocabulary import (
    OPTIONAL_STRING,
    STRING,
    Family,
    Schema,
    an_object,
    any_of,
    reference,
)
from vecmill_server.problems import PROBLEMS, UNEXPECTED, Problem, tei_status

# About other methods, paths and objects, before there is a route, or what keeps a server from starting.
_NOT_OF_WORK = frozenset(
    {
        "batches_off",
        "conflict",
        "headers_too_large",
        "invalid_key",
        "method_not_allowed",
        "setup",
        "unknown_object",
        "unknown_route",
    }
)
# These are about the bytes of a body, which is not read as JSON yet, or foreseen by nobody.
_BEFORE_THE_DIALECT = frozenset(
    {"body_too_large", "request_timeout", "unsupported_encoding", UNEXPECTED.reason}
)

PROBLEM, TEI_PROBLEM, OLLAMA_PROBLEM = "Problem", "TeiProblem", "OllamaProblem"


def post(
    summary: str,
    request: Schema,
    response: Schema,
    *,
    problems: Sequence[str] = (PROBLEM,),
    parameters: Sequence[Schema] = (),
) -> dict[str, Any]:
    """A route that computes. `problems` are the schemas of its errors: of each dialect that it speaks."""
    return {
        "summary": summary,
        "parameters": [
            header_parameter(
                "x-request-timeout-ms", {"type": "integer", "minimum": 1, "maximum": 999_999_999}
            ),
            header_parameter("x-request-id", STRING),
            *parameters,
        ],
        "requestBody": {"required": True, "content": as_json(request)},
        "responses": {
            "200": {
                "description": "Done",
                "content": as_json(response),
                "headers": headers(_timings(problems)),
            },
            **_errors_of_work(problems),
        },
    }


def get(
    summary: str,
    content: Mapping[str, Any],
    *,
    errors: Mapping[str, str] | None = None,
    parameters: Sequence[Schema] = (),
) -> dict[str, Any]:
    """A route that only reads. `errors` are its statuses besides 200, and what they mean."""
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "content": content},
            **{status: problem_response(text) for status, text in (errors or {}).items()},
        },
    }
    return operation | {"parameters": list(parameters)} if parameters else operation


def at(*paths: str, **operations: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The same operations, by method, at each of `paths`."""
    return {path: dict(operations) for path in paths}


def problem_response(description: str, schemas: Sequence[str] = (PROBLEM,)) -> dict[str, Any]:
    """An error, in one of these shapes."""
    return {"description": description, "content": as_json(any_of(*map(reference, schemas)))}


def as_json(schema: Schema) -> dict[str, Any]:
    """A body of this schema."""
    return {"application/json": {"schema": schema}}


def header_parameter(name: str, schema: Schema) -> dict[str, Any]:
    """A header that may be sent."""
    return {"name": name, "in": "header", "required": False, "schema": schema}


def path_parameter(name: str) -> dict[str, Any]:
    """A part of the path."""
    return {"name": name, "in": "path", "required": True, "schema": STRING}


def describe_problems() -> Family:
    """The bodies of errors, which every family refers to."""
    ours = an_object(
        ("error", "message", "detail"),
        {
            "error": an_object(
                ("message", "type", "param", "code"),
                {"message": STRING, "type": STRING, "param": OPTIONAL_STRING, "code": OPTIONAL_STRING},
            ),
            "message": STRING,
            "detail": STRING,
        },
    )
    tei = an_object(("error", "error_type"), {"error": STRING, "error_type": STRING})
    return Family(
        {}, {PROBLEM: ours, TEI_PROBLEM: tei, OLLAMA_PROBLEM: an_object(("error",), {"error": STRING})}
    )


def _timings(schemas: Sequence[str]) -> tuple[str, ...]:
    if TEI_PROBLEM not in schemas:
        return OUR_TIMINGS
    return TEI_TIMINGS if len(schemas) == 1 else (*OUR_TIMINGS, *TEI_TIMINGS)


def _errors_of_work(schemas: Sequence[str]) -> dict[str, Any]:
    """By status, what can go wrong where errors are told in these shapes."""
    reasons: dict[str, set[str]] = {}
    shapes: dict[str, set[str]] = {}
    for problem in (*PROBLEMS.values(), UNEXPECTED):
        if problem.reason in _NOT_OF_WORK:
            continue
        is_early = problem.reason in _BEFORE_THE_DIALECT
        for schema in (PROBLEM,) if is_early else schemas:
            status = str(_status(problem, schema))
            reasons.setdefault(status, set()).add(problem.reason)
            shapes.setdefault(status, set()).add(schema)
    return {
        status: problem_response(", ".join(sorted(names)), sorted(shapes[status]))
        for status, names in sorted(reasons.items())
    }


def _status(problem: Problem, schema: str) -> int:
    return tei_status(problem) if schema == TEI_PROBLEM else problem.status
