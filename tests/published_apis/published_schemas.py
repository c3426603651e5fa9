"""Reduces a published OpenAPI document to the facts that `tests/published_apis` checks the server against.

`python -m published_apis.published_schemas tei openapi.json COMMIT` reads the document as it stands in the
commit of its repository, and writes `tests/published_apis/tei.json`: for each operation its method, its path,
its parameters, and the schemas of its request and its responses. Descriptions and examples are left out.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from support.source_tree import ROOT

FOLDER = ROOT / "tests/published_apis"
METHODS = ("get", "post", "put", "patch", "delete")
# The keywords of a schema that decide which values are valid, by what they hold.
OF_ONE_SCHEMA = ("items", "additionalProperties")
OF_SCHEMAS = ("allOf", "anyOf", "oneOf")
OF_NAMED_SCHEMAS = ("properties",)
OF_VALUES = (
    *("type", "enum", "const", "nullable", "required", "format", "pattern", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems", "uniqueItems"),
)
KEYWORDS = ("$ref", *OF_VALUES, *OF_ONE_SCHEMA, *OF_SCHEMAS, *OF_NAMED_SCHEMAS)
REFERENCE = "#/components/schemas/"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A published document: the API, its repository, the path in it, and the licence of the repository.

    Operations are kept if the first part of their path is in `parts`; all of them without `parts`. `errors`
    is the schema of the errors that the document has no response for.
    """

    api: str
    repository: str
    path: str
    licence: str
    parts: tuple[str, ...] = ()
    errors: str | None = None


SOURCES: Mapping[str, Source] = {
    "tei": Source(
        "Text Embeddings Inference",
        "huggingface/text-embeddings-inference",
        "docs/openapi.json",
        "Apache-2.0",
    ),
    "infinity": Source("Infinity", "michaelfeil/infinity", "docs/assets/openapi.json", "MIT"),
    "openai": Source(
        "OpenAI",
        "openai/openai-openapi",
        "openapi.yaml",
        "MIT",
        ("embeddings", "models", "files", "batches"),
        "ErrorResponse",
    ),
}


def reduce_document(document: Json, source: Source, commit: str) -> Json:
    """The facts of a document."""
    components = document["components"]
    operations = [
        _reduce_operation(method, path, operation, components)
        for path, operations in document["paths"].items()
        if not source.parts or path.split("/")[1] in source.parts
        for method, operation in operations.items()
        if method in METHODS
    ]
    first = [] if source.errors is None else [source.errors]
    named = _referenced(first + list(_references(operations)), components["schemas"])
    about = {name: value for name, value in asdict(source).items() if value and name != "parts"}
    return {
        "source": {**about, "commit": commit, "version": document["info"]["version"]},
        "openapi": document["openapi"],
        "operations": operations,
        "schemas": named,
    }


def _reduce_operation(method: str, path: str, operation: Json, components: Json) -> Json:
    kept: Json = {"method": method.upper(), "path": path}
    parameters = [
        {"name": each["name"], "in": each["in"], "schema": reduce_schema(each["schema"])}
        for each in operation.get("parameters", ())
    ]
    if parameters:
        kept["parameters"] = parameters
    if "requestBody" in operation:
        kept["request"] = _reduce_content(operation["requestBody"])
    kept["responses"] = {
        status: _reduce_content(_resolve(response, components))
        for status, response in operation["responses"].items()
    }
    return kept


def _resolve(response: Json, components: Json) -> Json:
    reference = response.get("$ref")
    if reference is None:
        return response
    found: Json = components["responses"][reference.rpartition("/")[2]]
    return found


def _reduce_content(holder: Json) -> Json | None:
    """The only type of a body and its schema; nothing if the document says nothing of the body."""
    content = holder.get("content", {})
    if not content:
        return None
    ((kind, described),) = content.items()
    schema = described.get("schema")
    return {"type": kind, "schema": reduce_schema(schema)} if schema else None


def reduce_schema(schema: Json) -> Json:
    """The keywords of a schema that decide which values are valid."""
    return {name: _reduce_keyword(name, schema[name]) for name in KEYWORDS if name in schema}


def _reduce_keyword(name: str, value: Any) -> Any:
    if name in OF_NAMED_SCHEMAS:
        return {key: reduce_schema(each) for key, each in value.items()}
    if name in OF_SCHEMAS:
        return [reduce_schema(each) for each in value]
    if name in OF_ONE_SCHEMA and isinstance(value, dict):
        return reduce_schema(value)
    return value.replace(REFERENCE, "#/schemas/") if name == "$ref" else value


def _references(value: Any) -> Iterator[str]:
    """The names of the schemas that are referred to anywhere in a value."""
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rpartition("/")[2]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _references(each)


def _referenced(names: Iterable[str], schemas: Json) -> Json:
    """The named schemas, and those that they refer to, by name."""
    found: Json = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = reduce_schema(schemas[name])
            waiting += _references(found[name])
    return dict(sorted(found.items()))


def encode_facts(facts: Json) -> str:
    """The text of a file: a line for each operation and each schema."""
    lines = [f'"source": {_encode(facts["source"])}', f'"openapi": {_encode(facts["openapi"])}']
    operations = ",\n".join(map(_encode, facts["operations"]))
    schemas = ",\n".join(f"{_encode(name)}: {_encode(each)}" for name, each in facts["schemas"].items())
    lines += [f'"operations": [\n{operations}\n]', f'"schemas": {{\n{schemas}\n}}']
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_document(path: Path) -> Json:
    """An OpenAPI document, in JSON or YAML."""
    text = path.read_text("utf-8")
    document: Json = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    return document


def main() -> None:
    """Write the facts of one document."""
    parser = argparse.ArgumentParser(description="Reduce a published OpenAPI document to facts.")
    parser.add_argument("name", choices=SOURCES)
    parser.add_argument("document", type=Path)
    parser.add_argument("commit", help="the commit of the repository that the document is of")
    arguments = parser.parse_args()
    facts = reduce_document(read_document(arguments.document), SOURCES[arguments.name], arguments.commit)
    (FOLDER / f"{arguments.name}.json").write_text(encode_facts(facts), "utf-8")


if __name__ == "__main__":
    main()
