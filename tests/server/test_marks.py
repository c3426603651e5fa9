"""At a path that several APIs share, the keys of a body tell whose it is, and its schema says the same."""

from itertools import combinations
from typing import Any

import jsonschema_rs
import pytest

from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect import InferenceBody, Marks
from vecmill_server.dialects.dialect_routes import ROUTES, routes_by_path
from vecmill_server.dialects.fields import DialectOptions, Json
from vecmill_server.dialects.token_ids import keep_ids

KEYS = (
    "candidate_labels",
    "content",
    "documents",
    "input",
    "inputs",
    "labels",
    "prompt",
    "property",
    "queries",
    "query",
    "text",
    "texts",
    "top_k",
)
OPTIONS = DialectOptions(keep_ids, lambda _name, _tasks=(), /: None)
SHARED = {
    path: route for path, route in routes_by_path().items() if sum(path in each.paths for each in ROUTES) > 1
}
BODIES: list[Json] = [dict.fromkeys(keys, "x") for count in range(5) for keys in combinations(KEYS, count)]


def chosen(path: str, json: Json) -> type[InferenceBody]:
    choose = SHARED[path].choose
    assert choose is not None
    return choose(json, OPTIONS)


def keys_of(body: type[InferenceBody]) -> Any:
    """The part of the schema of a body that is about the presence of keys."""
    schema = body.schema(ServerSettings())
    return {name: schema[name] for name in ("required", "allOf", "not") if name in schema}


@pytest.mark.parametrize("path", SHARED)
def test_a_body_matches_the_schema_of_no_other_client(path: str) -> None:
    schemas = {body: jsonschema_rs.validator_for(keys_of(body)) for body in SHARED[path].bodies}
    matched = set()
    for json in BODIES:
        matching = {body for body, schema in schemas.items() if schema.is_valid(json)}
        assert matching <= {chosen(path, json)}
        matched |= matching
    assert matched == set(schemas)


@pytest.mark.parametrize(
    ("path", "json", "name"),
    [
        ("/rerank", {"documents": ["a"]}, "RerankRequest"),
        ("/rerank", {"documents": ["a"], "top_k": None}, "VoyageRerankRequest"),
        ("/rerank", {"documents": ["a"], "top_k": 1, "property": "a"}, "VoyageRerankRequest"),
        ("/rerank", {"documents": ["a"], "property": None}, "WeaviateRerankRequest"),
        ("/rerank", {"documents": ["a"], "texts": None}, "RerankRequest"),
        ("/rerank", {"texts": ["a"], "top_k": 1}, "TeiRerankRequest"),
        ("/reranking", {"input": ["a"]}, "MixedbreadRerankRequest"),
        ("/reranking", {"input": ["a"], "documents": ["a"]}, "RerankRequest"),
        ("/embeddings", {"input": "a", "content": "a"}, "EmbeddingsRequest"),
        ("/embeddings", {"content": "a"}, "LlamaContentRequest"),
        ("/tokenize", {"text": "a", "inputs": "a"}, "TeiTokenizeRequest"),
        ("/tokenize", {"text": "a"}, "CohereTokenizeRequest"),
        ("/tokenize", {"content": "a", "prompt": "a"}, "TokenizeRequest"),
        ("/tokenize", {}, "TokenizeRequest"),
    ],
)
def test_the_keys_of_a_body_choose_its_reader(path: str, json: Json, name: str) -> None:
    assert chosen(path, json).__name__ == name


def test_a_body_without_marks_has_its_schema_unchanged() -> None:
    schema = {"type": "object"}
    assert Marks().restrict(schema) is schema
