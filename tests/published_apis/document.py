"""The facts of a published OpenAPI document, and the comparison of a value with a schema of it.

`published_apis.published_schemas` writes the files.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

FOLDER = Path(__file__).parent

Json = dict[str, Any]
ReadSchema = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Content:
    """The body of a request or a response, as the document has it."""

    media_type: str
    schema: Json


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `None` among the responses: the document says nothing of the body."""

    method: str
    path: str
    parameters: tuple[str, ...]
    request: Content | None
    responses: Mapping[int, Content | None]

    @property
    def name(self) -> str:
        """The method and the path."""
        return f"{self.method} {self.path}"

    def find_error(self) -> Content | None:
        """The body that the operation has for any error; `None` if the document has none."""
        errors = (content for status, content in sorted(self.responses.items()) if status >= 400)
        return next(errors, None)


@dataclass(frozen=True, slots=True)
class PublishedDocument:
    """The operations of an API by name, and its schemas.

    `error` is the body of errors at statuses that the document leaves out, `validators` what has been made of
    schemas, which takes longer than most comparisons.
    """

    api: str
    operations: Mapping[str, Operation]
    schemas: Mapping[str, Json]
    error: Content | None
    validators: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def find_mismatches(self, schema: Json, value: object) -> set[str]:
        """Where `value` does not match a schema: the place in the value, and the keyword that it breaks."""
        key = json.dumps(schema)
        if key not in self.validators:
            whole = {**schema, "schemas": self.schemas}
            self.validators[key] = jsonschema_rs.validator_for(whole, validate_formats=True)
        return {_describe(error) for error in self.validators[key].iter_errors(value)}

    def find_mismatches_of_answer(self, operation: Operation, answer: httpx.Response) -> set[str]:
        """What a response has that the document does not allow.

        At a status that the document leaves out, an error is compared with the other errors.
        """
        status, found = answer.status_code, set[str]()
        if status in operation.responses:
            content = operation.responses[status]
        elif self.error is not None and status >= 400:
            content = self.error
        else:
            content = operation.find_error()
            found.add(f"status {status}")
        return found if content is None else found | self._compare(content, answer)

    def _compare(self, content: Content, answer: httpx.Response) -> set[str]:
        media_type = answer.headers["content-type"].partition(";")[0]
        value: Any = answer.json() if media_type == "application/json" else answer.text
        found = set() if media_type == content.media_type else {f"the media type {media_type}"}
        return found | self.find_mismatches(content.schema, value)

    def properties_of(self, schema: Json) -> set[str]:
        """The names of the properties of an object that matches a schema."""
        return set(self._walk(schema))

    def _walk(self, schema: Json) -> Iterator[str]:
        if "$ref" in schema:
            yield from self._walk(self.schemas[schema["$ref"].rpartition("/")[2]])
        yield from schema.get("properties", ())
        for keyword in ("allOf", "anyOf", "oneOf"):
            for each in schema.get(keyword, ()):
                yield from self._walk(each)


def _describe(error: jsonschema_rs.ValidationError) -> str:
    place = "/".join("*" if isinstance(part, int) else part for part in error.instance_path)
    return f"{place or 'the body'}: {error.schema_path[-1]}"


@cache
def read_facts(api: str) -> Json:
    """The facts of a document, by the name of their file."""
    facts: Json = json.loads((FOLDER / f"{api}.json").read_text("utf-8"))
    return facts


@cache
def load_document(api: str) -> PublishedDocument:
    """The document of an API."""
    facts = read_facts(api)
    has_nullable = facts["openapi"].startswith("3.0")
    read = _allow_null if has_nullable else _keep
    operations = [_read_operation(each, read) for each in facts["operations"]]
    error = facts["source"].get("errors")
    return PublishedDocument(
        api,
        {operation.name: operation for operation in operations},
        {name: read(schema) for name, schema in facts["schemas"].items()},
        None if error is None else Content("application/json", {"$ref": f"#/schemas/{error}"}),
    )


def _read_operation(facts: Json, read: ReadSchema) -> Operation:
    def read_content(content: Json | None) -> Content | None:
        return None if content is None else Content(content["type"], read(content["schema"]))

    return Operation(
        facts["method"],
        facts["path"],
        tuple(each["name"] for each in facts.get("parameters", ())),
        read_content(facts.get("request")),
        {int(status): read_content(content) for status, content in facts["responses"].items()},
    )


def _keep(schema: Any) -> Any:
    return schema


def _allow_null(schema: Any) -> Any:
    """A schema of OpenAPI 3.0 as JSON Schema has it, which does not know `nullable`."""
    if isinstance(schema, list):
        return [_allow_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _allow_null(each) for name, each in schema.items() if name != "nullable"}
    return {"anyOf": [changed, {"type": "null"}]} if schema.get("nullable") is True else changed


def restore_document(api: str) -> Json:
    """The OpenAPI document of the facts, without its responses, for what makes requests of it."""
    facts = read_facts(api)
    paths: dict[str, Json] = {}
    for each in facts["operations"]:
        operation: Json = {"responses": {"200": {"description": "Done"}}}
        if "request" in each:
            request = each["request"]
            content = {request["type"]: {"schema": request["schema"]}}
            operation["requestBody"] = {"required": True, "content": content}
        if "parameters" in each:
            operation["parameters"] = [
                {**given, "required": given["in"] == "path"} for given in each["parameters"]
            ]
        paths.setdefault(each["path"], {})[each["method"].lower()] = operation
    document = {
        "openapi": facts["openapi"],
        "info": {"title": facts["source"]["api"], "version": facts["source"]["version"]},
        "paths": paths,
        "components": {"schemas": facts["schemas"]},
    }
    text = json.dumps(document).replace('"#/schemas/', '"#/components/schemas/')
    restored: Json = json.loads(text)
    return restored
