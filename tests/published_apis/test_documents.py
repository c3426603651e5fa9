"""The facts of published documents: how they are reduced, and how values are compared with them."""

from typing import Any

import pytest

from published_apis.apis import APIS
from published_apis.document import FOLDER, load_document, read_facts, restore_document
from published_apis.published_schemas import SOURCES, encode_facts, reduce_document, reduce_schema

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"version": "1.2", "title": "An API"},
    "paths": {
        "/texts": {
            "parameters": [],
            "post": {
                "description": "A description.",
                "requestBody": {"content": {"application/json": {"schema": {"type": "string"}}}},
                "responses": {
                    "200": {
                        "description": "Done",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Text"}}},
                    },
                    "429": {"$ref": "#/components/responses/Busy"},
                    "503": {"description": "No body"},
                },
            },
        },
    },
    "components": {
        "responses": {"Busy": {"content": {"application/json": {"schema": {"type": "integer"}}}}},
        "schemas": {
            "Text": {
                "type": "object",
                "example": {"name": "a"},
                "properties": {
                    "description": {"type": "string", "description": "A description.", "nullable": True},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
                },
            },
            "Part": {"title": "A part", "anyOf": [{"type": "integer", "default": 5}]},
            "Unused": {"type": "string"},
        },
    },
}


def test_a_document_is_reduced_to_what_decides_which_values_are_valid() -> None:
    facts = reduce_document(DOCUMENT, SOURCES["tei"], "a-commit")
    assert facts["source"]["version"] == "1.2"
    assert facts["operations"] == [
        {
            "method": "POST",
            "path": "/texts",
            "request": {"type": "application/json", "schema": {"type": "string"}},
            "responses": {
                "200": {"type": "application/json", "schema": {"$ref": "#/schemas/Text"}},
                "429": {"type": "application/json", "schema": {"type": "integer"}},
                "503": None,
            },
        }
    ]
    assert facts["schemas"] == {
        "Part": {"anyOf": [{"type": "integer"}]},
        "Text": {
            "type": "object",
            "properties": {
                "description": {"type": "string", "nullable": True},
                "parts": {"type": "array", "items": {"$ref": "#/schemas/Part"}},
            },
        },
    }


def test_the_files_are_what_the_reduction_writes() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SOURCES) == set(APIS)
    for api in APIS:
        facts = read_facts(api)
        assert (FOLDER / f"{api}.json").read_text("utf-8") == encode_facts(facts)
        assert {"api", "repository", "commit", "version", "licence"} <= set(facts["source"])
        for schema in facts["schemas"].values():
            assert reduce_schema(schema) == schema
        restored = restore_document(api)
        assert set(restored["components"]["schemas"]) == set(facts["schemas"])


@pytest.mark.parametrize(
    ("value", "mismatches"),
    [
        ({"id": 1, "text": "a", "special": False, "start": 0, "stop": None}, set()),
        ({"id": 1, "text": "a", "special": False}, set()),
        ({"id": 1, "text": None, "special": False}, {"text: type"}),
        ({"id": -1, "text": "a"}, {"id: minimum", "the body: required"}),
        ({"id": 1, "text": "a", "special": False, "start": "0"}, {"start: anyOf"}),
    ],
)
def test_null_is_allowed_where_a_document_of_openapi_3_0_says_so(value: Any, mismatches: set[str]) -> None:
    assert load_document("tei").find_mismatches({"$ref": "#/schemas/SimpleToken"}, value) == mismatches


def test_each_part_of_a_response_is_compared() -> None:
    document = load_document("tei")
    answer = [[{"index": 0, "value": 1.5}, {"index": 0.5, "value": 1}, {"value": "1"}]]
    found = document.find_mismatches({"$ref": "#/schemas/EmbedSparseResponse"}, answer)
    assert found == {"*/*/index: type", "*/*: required", "*/*/value: type"}
