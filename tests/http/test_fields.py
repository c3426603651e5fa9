"""What is read of a body and what the description names are the same fields, on every route."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import vecmill_server
from support.described_models import describe_tasks
from support.http_server import HttpServer, serve_in_thread
from vecmill.errors import VecmillError
from vecmill.models import Task
from vecmill_server.app import describe_routes, list_routes
from vecmill_server.app.routes.endpoint import Endpoint
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.fields import DialectOptions

DOCUMENT = describe_routes(ServerSettings())

Bodies = list[dict[str, Any]]

# A body of each shape that a path takes: one that names none of the fields that may be left out.
EMBED: Bodies = [{"input": "a"}, {"input": [{"text": "a"}]}]
PAIR = {"query": "a", "documents": ["b"]}
RERANK: Bodies = [
    PAIR,
    {"query": "a", "documents": [{"text": "b"}]},
    {"query": "a", "documents": [{"content": [{"text": "b"}]}]},
    {**PAIR, "top_k": 1},
    {**PAIR, "property": ""},
    {"query": "a", "texts": ["b"]},
]
COHERE: Bodies = [{"texts": ["a"]}, {"inputs": [{"content": [{"text": "a"}]}]}]
SCORE: Bodies = [
    {"queries": "a", "documents": "b"},
    {"text_1": "a", "text_2": "b"},
    {"data_1": "a", "data_2": "b"},
]
POOLING: Bodies = [
    {"input": "a"},
    {"input": "a", "task": "token_embed"},
    {"input": "a", "task": "classify"},
    {"input": "a", "task": "token_classify"},
]
TOKENIZE: Bodies = [{"prompt": "a"}, {"inputs": "a"}, {"text": "a"}]
EMBED_OR_CONTENT: Bodies = [*EMBED, {"content": "a"}, {"content": [{"text": "a"}]}]
RERANKING: Bodies = [*RERANK, {"query": "a", "input": ["b"]}]
RANKING: Bodies = [{"query": {"text": "a"}, "passages": [{"text": "b"}]}]
COHERE_RANKING: Bodies = [PAIR]
TEXTS: Bodies = [{"input": "a"}]
TEI: Bodies = [{"inputs": "a"}]
LABELS: Bodies = [
    *TEXTS,
    {"input": "a", "candidate_labels": ["b"]},
    {"input": "a", "labels": ["b"]},
    {"inputs": "a", "candidate_labels": ["b"]},
]
CONTENTS: Bodies = [{"inputs": [{"content": [{"text": "a"}]}]}]
IMAGES: Bodies = [{"input": [{"image": "AAAA"}]}]
SENTENCES: Bodies = [{"sentences": "a"}]
DETOKENIZE: Bodies = [{"tokens": [5]}]
SIMILARITY: dict[str, Any] = {"inputs": {"source_sentence": "a", "sentences": ["b"]}}
UNTOLD: Bodies = [
    *({"inputs": "a", "model": f"model/{task}"} for task in Task),
    {"query": "a", "texts": ["b"]},
    {"inputs": {"query": "a", "texts": ["b"]}},
    SIMILARITY,
    *({"input": "a", "model": f"model/{task}"} for task in (Task.EMBED, Task.CLASSIFY)),
    PAIR,
    *SCORE,
    {"input": "a", "candidate_labels": ["b"]},
    {"inputs": "a", "candidate_labels": ["b"]},
]
BODIES: Mapping[str, Bodies] = {
    **dict.fromkeys(("/v1/embeddings", "/embeddings", "/embedding"), EMBED_OR_CONTENT),
    **dict.fromkeys(("/v1/embedding", "/openai/v1/embeddings", "/models/embeddings"), EMBED),
    **dict.fromkeys(("/compatible-mode/v1/embeddings", "/v1/openai/embeddings"), EMBED),
    "/inference/v1/embeddings": EMBED,
    "/openai/deployments/{model}/embeddings": EMBED,
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank", "/openai/v1/rerank"), RERANK),
    "/providers/cohere/v2/rerank": RERANK,
    **dict.fromkeys(("/reranking", "/v1/reranking"), RERANKING),
    **dict.fromkeys(("/ranking", "/v1/ranking"), RANKING),
    "/v1/inference/{model}": [{"queries": ["a"], "documents": ["b"]}, {"inputs": "a"}],
    "/v1/retrieval/{name}/reranking": RANKING,
    "/inference/v1/rerank": [PAIR],
    **dict.fromkeys(("/compatible-api/v1/reranks", "/v1/reranks", "/reranks"), COHERE_RANKING),
    "/api/v1/services/rerank/text-rerank/text-rerank": [{"input": PAIR, "parameters": {}}],
    "/api/v1/services/embeddings/text-embedding/text-embedding": [
        {"input": {"texts": "a"}, "parameters": {}}
    ],
    "/pinecone/embed": [{"inputs": "a"}, {"inputs": [{"text": "a"}], "parameters": {}}],
    "/llamafile/embedding": [{"content": "a"}],
    "/pinecone/rerank": [PAIR, {**PAIR, "parameters": {}}],
    "/voyage/v1/embeddings": EMBED,
    "/voyage/v1/rerank": [PAIR, {"query": "a", "documents": [{"text": "b"}]}],
    **dict.fromkeys(("/v1/embed", "/v2/embed"), COHERE),
    **dict.fromkeys(("/score", "/v1/score"), SCORE),
    **dict.fromkeys(("/classify", "/v1/classify"), LABELS),
    **dict.fromkeys(("/v1/multimodalembeddings", "/multimodalembeddings"), CONTENTS),
    "/voyage/v1/multimodalembeddings": CONTENTS,
    **dict.fromkeys(("/embeddings_image", "/v1/embeddings_image"), IMAGES),
    **dict.fromkeys(("/images/embeddings", "/models/images/embeddings"), IMAGES),
    "/vectorize": [{"texts": ["a"]}, {"texts": ["a"], "images": []}],
    **dict.fromkeys(("/pooling", "/v1/pooling"), POOLING),
    "/tokenize": [*TOKENIZE, {"content": "a"}],
    "/v1/tokenize": TOKENIZE,
    **dict.fromkeys(("/detokenize", "/v1/detokenize"), DETOKENIZE),
    "/embed": [{"inputs": "a"}, {"inputs": [{"text": "a"}]}],
    **dict.fromkeys(("/embed_all", "/embed_sparse"), TEI),
    "/predict": [{"inputs": "a"}, {"inputs": "a", "parameters": {}}],
    "/similarity": [SIMILARITY, {**SIMILARITY, "parameters": {}}],
    "/decode": [{"ids": [5]}],
    **dict.fromkeys(("/encode", "/v1/encode"), SENTENCES),
    "/api/embed": [*EMBED, {}],
    "/api/embeddings": [{"prompt": "a"}, {}],
    "/api/show": [{}],
    "/api/pull": [{}],
    "/api/rerank": [PAIR, {"query": "a", "documents": [{"text": "b"}]}],
    **dict.fromkeys(("/", "/invocations"), UNTOLD),
    "/vertex": [{"instances": [{"inputs": "a"}]}],
}

# Wrong for whatever reads it, and there for whatever only asks whether it is.
POISON = {"poison": 0}

Place = tuple[str | int, ...]


@cache
def literal_names() -> set[str]:
    """Every text in the readers' sources that could be the name of a field."""
    package = Path(vecmill_server.__file__).parent
    sources = package.glob("dialects/*.py")
    found = {
        node.value
        for source in sources
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {name for name in found if re.fullmatch("[a-z][a-z0-9_]*", name)}


def objects_in(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all objects in a document."""
    if isinstance(value, dict):
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from objects_in(item, (*place, key))


def with_field(value: Any, place: Place, name: str, field: object) -> Any:
    """The document with one more field in the object at `place`."""
    if not place:
        return {**value, name: field}
    head, *rest = place
    if isinstance(value, list):
        changed = with_field(value[int(head)], tuple(rest), name, field)
        return [changed if at == head else item for at, item in enumerate(value)]
    return {**value, head: with_field(value[head], tuple(rest), name, field)}


def outcome(endpoint: Endpoint, document: dict[str, Any], options: DialectOptions) -> object:
    """What becomes of a document: what it asks and how the answer is written, or what is wrong with it."""
    try:
        asked = endpoint.choose(document, options).parse(document, options)
    except VecmillError as error:
        return type(error), error.message
    write = asked.write
    if isinstance(write, partial):
        return asked.request, write.func.__qualname__, write.args
    return asked.request, write.__qualname__


def described_at(schema: Mapping[str, Any], place: Place) -> set[str]:
    """The properties that the description names for the object at `place`, in any of its shapes."""
    shapes = list(shapes_of(schema))
    if not place:
        return {name for shape in shapes for name in shape.get("properties", {})}
    head, *rest = place
    inner = [
        shape["items"] if isinstance(head, int) else shape["properties"][head]
        for shape in shapes
        if (isinstance(head, int) and "items" in shape) or head in shape.get("properties", {})
    ]
    return {name for one in inner for name in described_at(one, tuple(rest))}


def shapes_of(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and those that it is made of."""
    yield schema
    if "$ref" in schema:
        yield from shapes_of(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for key in ("anyOf", "allOf"):
        for part in schema.get(key, ()):
            yield from shapes_of(part)


def plain_path(path: str) -> str:
    return re.sub(r"\{(\w+):path\}", r"{\1}", path)


def body_schema(path: str) -> Mapping[str, Any]:
    content: Mapping[str, Any] = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]
    schema: Mapping[str, Any] = content["application/json"]["schema"]
    return schema


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serve_in_thread(models=list(describe_tasks().values())) as server:
        yield server


@pytest.fixture(scope="module")
def endpoints(server: HttpServer) -> Mapping[str, Endpoint]:
    """What computes, by path."""
    found = [(plain_path(route.path), route.endpoint) for route in list_routes(server.service)]
    return {path: endpoint for path, endpoint in found if isinstance(endpoint, Endpoint)}


def test_the_description_has_the_routes_and_nothing_else(server: HttpServer) -> None:
    served = {
        (plain_path(route.path), method.lower())
        for route in list_routes(server.service)
        for method in (route.methods or set()) - {"HEAD"}
        # Those are the page's own, and pages for people.
        if not route.path.startswith(("/console", "/alerts"))
    }
    described = {(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations}
    assert described == served


def test_every_route_that_computes_is_examined(endpoints: Mapping[str, Endpoint]) -> None:
    assert set(BODIES) == set(endpoints)


@pytest.mark.parametrize("path", BODIES)
def test_every_field_that_is_read_is_described(
    server: HttpServer, endpoints: Mapping[str, Endpoint], path: str
) -> None:
    options, schema = server.service.dialect_options, body_schema(path)
    found = [undescribed(endpoints[path], options, schema, body) for body in BODIES[path]]
    assert found == [[] for _ in found]


def undescribed(
    endpoint: Endpoint, options: DialectOptions, schema: Mapping[str, Any], body: dict[str, Any]
) -> list[tuple[Place, str]]:
    """Where in `body` a field would change what is asked, though the schema does not name it."""
    usual = outcome(endpoint, body, options)
    return [
        (place, name)
        for place in objects_in(body)
        for name in sorted(literal_names() - described_at(schema, place))
        if outcome(endpoint, with_field(body, place, name, POISON), options) != usual
    ]


@pytest.mark.parametrize("name", ["normalize", "truncation_side", "input_type"])
def test_a_field_that_is_not_described_is_found(
    server: HttpServer, endpoints: Mapping[str, Endpoint], name: str
) -> None:
    whole = DOCUMENT["components"]["schemas"]["TeiEmbedRequest"]
    properties = {key: schema for key, schema in whole["properties"].items() if key != name}
    found = undescribed(
        endpoints["/embed"], server.service.dialect_options, {"properties": properties}, {"inputs": "a"}
    )
    assert found == [((), name)]


@pytest.mark.parametrize("path", BODIES)
def test_every_field_that_is_described_is_read(
    server: HttpServer, endpoints: Mapping[str, Endpoint], path: str
) -> None:
    endpoint, options, bodies = endpoints[path], server.service.dialect_options, BODIES[path]

    def is_read(name: str) -> bool:
        return any(
            outcome(endpoint, {**body, name: poison}, options) != outcome(endpoint, body, options)
            for body in bodies
            for poison in (POISON, "poison")
        )

    assert [name for name in sorted(described_at(body_schema(path), ())) if not is_read(name)] == []


@pytest.mark.parametrize("path", BODIES)
def test_every_field_of_a_body_is_checked_whatever_else_it_has(
    server: HttpServer, endpoints: Mapping[str, Endpoint], path: str
) -> None:
    endpoint, options = endpoints[path], server.service.dialect_options

    def unchecked(body: dict[str, Any]) -> list[str]:
        properties = endpoint.choose(body, options).schema(ServerSettings())["properties"]
        usual = outcome(endpoint, body, options)
        return [
            name
            for name in properties
            if name != "property"  # whose presence alone matters
            and all(
                outcome(endpoint, {**body, name: poison}, options) == usual for poison in (POISON, "poison")
            )
        ]

    assert {str(body): unchecked(body) for body in BODIES[path]} == {str(body): [] for body in BODIES[path]}
