"""Operations: what a method of a path takes, and every response that it can give, its errors included."""

from collections.abc import Mapping, Sequence
from typing import Any

from vecmill_server.openapi.vocabulary import (
    OPTIONAL_STRING,
    STRING,
    Family,
    Schema,
    an_object,
    any_of,
    reference,
)
from vecmill_server.problems import PROBLEMS

# 405 is for other methods, 409 for what is kept, and 431 comes before there is a route.
_NOT_OF_A_ROUTE = frozenset({405, 409, 431})
# These are about the bytes of a body, which is not read as JSON yet, or about the key.
_BEFORE_THE_DIALECT = frozenset({"401", "408", "415"})
# These can come before as well as after.
_BEFORE_AND_AFTER = frozenset({"413", "500", "503"})

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
            "200": {"description": "Done", "content": as_json(response)},
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


def _errors_of_work(schemas: Sequence[str]) -> dict[str, Any]:
    reasons: dict[str, set[str]] = {}
    for problem in PROBLEMS.values():
        if problem.status not in _NOT_OF_A_ROUTE:
            reasons.setdefault(str(problem.status), set()).add(problem.reason)
    if TEI_PROBLEM in schemas:
        reasons["422"] = {"a field is wrong"}
    return {
        status: problem_response(", ".join(sorted(names)), _shapes(status, schemas))
        for status, names in sorted(reasons.items())
    }


def _shapes(status: str, schemas: Sequence[str]) -> Sequence[str]:
    if status in _BEFORE_THE_DIALECT:
        return (PROBLEM,)
    if status == "422":
        return (TEI_PROBLEM,)
    if status in _BEFORE_AND_AFTER:
        return tuple(dict.fromkeys((PROBLEM, *schemas)))
    return schemas
