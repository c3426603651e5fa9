"""Requests of TEI's clients, and the intended differences from TEI's document."""

from collections.abc import Iterator, Mapping
from typing import Any

from published_apis.cases import ApiCases, Case, Difference, shorten
from published_apis.servers import MOST_BODY_BYTES, MOST_INPUTS, POISON

OPENAI_ERRORS = "errors of /v1/embeddings"
OPENAI_STATUS_500 = "the status of a failed engine at /v1/embeddings"
OPENAI_STATUS_404 = "the status of an unknown model at /v1/embeddings"

UNREAD = "a body whose keys are not read, at a path of several APIs"

_OPENAI_BODY = ("the body: required",)

DIFFERENCES: Mapping[str, Difference] = {
    OPENAI_ERRORS: Difference(
        "OpenAI's packages read the error at this path, so the body has OpenAI's object `error`. TEI's "
        "`message` is there too, and its `code` and `error_type` are not.",
        _OPENAI_BODY,
    ),
    OPENAI_STATUS_404: Difference(
        "TEI ignores the name of the model. The server has several models, and an unknown name must not "
        "silently give the vectors of another model. `--alias '*'` serves any name.",
        ("status 404", *_OPENAI_BODY),
    ),
    OPENAI_STATUS_500: Difference(
        "OpenAI's packages know no 424 at this path. The engine's failure is a 500, as OpenAI has it.",
        ("status 500", *_OPENAI_BODY),
    ),
    UNREAD: Difference(
        "The path is that of Cohere's, Jina's and vLLM's clients too. The keys of a body tell whose it is, "
        "and a body that is too large or no JSON has none. The error is OpenAI's object, which most read.",
        ("the body: required", "error: type"),
    ),
}

# Statuses that TEI's document has and that no request gets, each with its reason.
UNUSED: Mapping[tuple[str, int], str] = {
    ("POST /v1/embeddings", 422): "A wrong field is a 400 at OpenAI's path, which OpenAI's packages know.",
    ("POST /v1/embeddings", 424): "OpenAI's packages know no 424, so a failed engine is a 500.",
}

# Fields of TEI's requests that are refused, each with its reason.
REFUSED: Mapping[tuple[str, str], str] = {
    ("POST /tokenize", "prompt_name"): "The tokens of a text are those of the text alone: a client that "
    "wants those of the prompt sends it with the text.",
}

_TEXTS = ["a text", "another text"]
_TOO_MANY = ["a"] * (MOST_INPUTS + 1)
_LONG = "a " * MOST_BODY_BYTES
_PAIRS = [["a text"], ["a text", "its pair"]]
_CUT = ({"truncate": True}, {"truncate": None}, {"truncate": False})
_SIDES = ({"truncation_direction": "Left"}, {"truncation_direction": "Right"})
_PROMPTS = ({"prompt_name": None}, {"prompt_name": "query"})
_RAW = ({"raw_scores": True}, {"raw_scores": False})
_FULL = "full of texts to embed"
_SHARED = ("/rerank", "/tokenize")

Body = dict[str, Any]

_OBJECT: Body = {}


def _similar(**parameters: Any) -> Body:
    body: Body = {"inputs": {"source_sentence": "a text", "sentences": _TEXTS}}
    return {**body, "parameters": parameters} if parameters else body


# For each operation, bodies that are answered, and by the status of their response bodies that are refused.
_GOOD: Mapping[str, tuple[Body, ...]] = {
    "/embed": (
        *({"inputs": inputs} for inputs in ("a text", _TEXTS, "", "word " * 300)),
        *({"inputs": _TEXTS, **option} for option in (*_CUT, *_SIDES, *_PROMPTS)),
        *({"inputs": _TEXTS, "dimensions": size} for size in (None, 4, 8)),
        *({"inputs": _TEXTS, "normalize": value} for value in (True, False)),
    ),
    "/embed_all": (
        *({"inputs": inputs} for inputs in ("a text", _TEXTS)),
        *({"inputs": _TEXTS, **option} for option in (*_CUT, *_SIDES, *_PROMPTS)),
    ),
    "/embed_sparse": (
        *({"inputs": inputs} for inputs in ("a text", _TEXTS)),
        *({"inputs": _TEXTS, **option} for option in (*_CUT, *_SIDES, *_PROMPTS)),
    ),
    "/predict": (
        *({"inputs": inputs} for inputs in ("a text", ["a text", "its pair"], _PAIRS)),
        *({"inputs": _PAIRS, **option} for option in (*_CUT, *_SIDES, *_RAW)),
    ),
    "/rerank": (
        *({"query": "a text", "texts": texts} for texts in (["a text"], _TEXTS)),
        *({"query": "a text", "texts": _TEXTS, **option} for option in (*_CUT, *_SIDES, *_RAW)),
        *({"query": "a text", "texts": _TEXTS, "return_text": value} for value in (True, False)),
    ),
    "/similarity": (
        _similar(),
        {**_similar(), "parameters": None},
        *(_similar(**option) for option in (*_CUT, *_SIDES, *_PROMPTS)),
    ),
    "/tokenize": (
        *({"inputs": inputs} for inputs in ("a text", _TEXTS)),
        *({"inputs": "wörld 日本", "add_special_tokens": value} for value in (True, False)),
        {"inputs": _TEXTS, "prompt_name": None},
    ),
    "/decode": (
        *({"ids": ids} for ids in ([101, 2088, 102], [[101, 2088, 102], [2088]])),
        *({"ids": [101, 2088], "skip_special_tokens": value} for value in (True, False)),
    ),
    "/v1/embeddings": (
        *({"input": value} for value in ("a text", _TEXTS)),
        *({"input": _TEXTS, "encoding_format": value} for value in ("float", "base64")),
        *({"input": _TEXTS, "dimensions": size} for size in (None, 4)),
        *({"input": "a text", "model": name} for name in (None, "model/embed")),
        *({"input": "a text", "user": name} for name in (None, "me")),
    ),
}
_LONG_UNCUT: Body = {"inputs": "word " * 300, "truncate": False}
_BAD_TEXTS: Mapping[int, tuple[Body, ...]] = {
    400: ({"inputs": []},),
    413: ({"inputs": _LONG},),
    422: (
        *({"inputs": value} for value in (None, 5, _TOO_MANY)),
        {"inputs": "a", "prompt_name": "nobody"},
        _LONG_UNCUT,
    ),
    424: ({"inputs": POISON},),
}
_BAD: Mapping[str, Mapping[int, tuple[Body, ...]]] = {
    "/embed": {
        400: ({"inputs": []},),
        413: ({"inputs": _LONG},),
        422: (
            *({"inputs": value} for value in (None, 5, [5], [[5]], _OBJECT, _TOO_MANY)),
            *({"inputs": "a", "truncation_direction": value} for value in ("Up", 5)),
            *({"inputs": "a", "dimensions": value} for value in (-1, 9, "a")),
            *({"inputs": "a", "prompt_name": value} for value in ("nobody", 5)),
            *({"inputs": "a", name: 5} for name in ("truncate", "normalize")),
            _LONG_UNCUT,
        ),
        424: ({"inputs": POISON},),
    },
    "/embed_all": _BAD_TEXTS,
    "/embed_sparse": _BAD_TEXTS,
    "/predict": {
        413: ({"inputs": _LONG},),
        422: (
            *({"inputs": value} for value in (None, [], [["a", "b", "c"]], [["a"]] * len(_TOO_MANY))),
            {"inputs": "a", "raw_scores": 5},
            _LONG_UNCUT,
        ),
        424: ({"inputs": POISON},),
    },
    "/rerank": {
        400: ({"query": "a", "texts": []},),
        413: ({"query": "a", "texts": [_LONG]},),
        422: (
            {"query": "a", "texts": _TOO_MANY},
            {"texts": ["a"]},
            {"query": "a", "texts": "b"},
            {"query": "a", "texts": [5]},
            {"query": "a", "texts": ["b"], "return_text": 5},
            {"query": "a", "texts": ["word " * 300], "truncate": False},
        ),
        424: ({"query": POISON, "texts": ["a"]},),
    },
    "/similarity": {
        400: ({"inputs": {"source_sentence": "a", "sentences": []}},),
        413: ({"inputs": {"source_sentence": "a", "sentences": [_LONG]}},),
        422: (
            {"inputs": {"source_sentence": "a", "sentences": _TOO_MANY}},
            {"inputs": "a"},
            {"inputs": {"source_sentence": "a"}},
            {"inputs": {"source_sentence": 5, "sentences": ["a"]}},
            _similar(truncate=5),
            _similar(prompt_name="nobody"),
            {**_similar(), "parameters": 5},
        ),
        424: ({"inputs": {"source_sentence": POISON, "sentences": ["a"]}},),
    },
    "/tokenize": {
        400: ({"inputs": []},),
        413: ({"inputs": _LONG},),
        422: (
            *({"inputs": value} for value in (5, _TOO_MANY)),
            {"inputs": "a", "add_special_tokens": 5},
            {"inputs": "a", "prompt_name": "query"},
        ),
    },
    "/decode": {
        400: ({"ids": []}, {"ids": [[]]}),
        413: ({"ids": [5] * MOST_BODY_BYTES},),
        422: (
            *({"ids": value} for value in (None, "a", [10**9], [[5]] * len(_TOO_MANY))),
            {"ids": [5], "skip_special_tokens": 5},
        ),
    },
}
# What a full server refuses, and which.
_REFUSED_BY: Mapping[str, tuple[str, Body]] = {
    "/embed": (_FULL, {"inputs": "a text"}),
    "/embed_all": (_FULL, {"inputs": "a text"}),
    "/similarity": (_FULL, _similar()),
    "/rerank": (_FULL, {"query": "a text", "texts": _TEXTS}),
    "/embed_sparse": ("full of sparse texts", {"inputs": "a text"}),
    "/predict": ("full of texts to classify", {"inputs": "a text"}),
}
# What a model cannot do, and a server that has no other.
_UNABLE: tuple[tuple[str, str, Body], ...] = (
    ("reranker alone", "/embed", {"inputs": "a"}),
    ("reranker alone", "/embed_all", {"inputs": "a"}),
    ("reranker alone", "/embed_sparse", {"inputs": "a"}),
    ("reranker alone", "/similarity", _similar()),
    ("embedder alone", "/predict", {"inputs": "a"}),
    ("classifier alone", "/rerank", {"query": "a", "texts": ["a"]}),
)
_OPENAI_BAD: tuple[tuple[int, str | None, Body], ...] = (
    *((400, OPENAI_ERRORS, {"input": value}) for value in (None, 5, [], _OBJECT, _TOO_MANY)),
    *((400, OPENAI_ERRORS, {"input": "a", name: "?"}) for name in ("encoding_format", "dimensions")),
    (413, OPENAI_ERRORS, {"input": _LONG}),
    (404, OPENAI_STATUS_404, {"input": "a", "model": "nobody"}),
    (500, OPENAI_STATUS_500, {"input": POISON}),
)


def _case(path: str, status: int, body: Any, **more: Any) -> Case:
    return Case("tei", f"POST {path}", status, shorten(body), json=body, **more)


def _list_cases() -> Iterator[Case]:
    for path, bodies in _GOOD.items():
        for body in bodies:
            yield _case(path, 200, body)
    for path, by_status in _BAD.items():
        shared = UNREAD if path in _SHARED else None
        for status, refused in by_status.items():
            for body in refused:
                yield _case(path, status, body, differs=shared if status == 413 else None)
        yield Case("tei", f"POST {path}", 400, "no JSON", content=b"{", differs=shared)
    for path, (server, body) in _REFUSED_BY.items():
        yield _case(path, 429, body, server=server)
    for server, path, body in _UNABLE:
        yield _case(path, 424, body, server=server)
    yield from _cases_of_openais_path()
    yield from _cases_of_token_ids()
    yield from _cases_of_the_server()


def _cases_of_openais_path() -> Iterator[Case]:
    path = "/v1/embeddings"
    for status, differs, body in _OPENAI_BAD:
        yield _case(path, status, body, differs=differs)
    yield Case("tei", f"POST {path}", 400, "no JSON", content=b"{", differs=OPENAI_ERRORS)
    yield _case(path, 429, {"input": "a"}, server=_FULL, differs=OPENAI_ERRORS)
    yield _case(path, 200, {"input": "a", "model": "nobody"}, server="any model name")


def _cases_of_token_ids() -> Iterator[Case]:
    for ids in ([101, 2088, 102], [[101, 2088, 102], "a text"]):
        native = "native token ids"
        yield Case("tei", "POST /embed", 200, f"of {ids}", json={"inputs": ids}, server=native)
        yield Case("tei", "POST /v1/embeddings", 200, f"of {ids}", json={"input": ids}, server=native)
        yield Case("tei", "POST /embed", 422, f"of {ids}", json={"inputs": ids})
        yield Case("tei", "POST /embed_sparse", 200, f"of {ids}", json={"inputs": ids}, server=native)
        # A multi-vector model answers, which marks its texts.
        yield Case("tei", "POST /embed_all", 422, f"of {ids}", json={"inputs": ids}, server=native)


def _cases_of_the_server() -> Iterator[Case]:
    for server in ("every task", "embedder alone", "reranker alone", "classifier alone"):
        yield Case("tei", "GET /info", 200, server, server=server)
    yield Case("tei", "GET /metrics", 200, "after requests")
    for server in ("every task", "one model failed"):
        yield Case("tei", "GET /health", 200, server, server=server)
    yield Case("tei", "GET /health", 503, "while it loads", server="loading")


TEI = ApiCases(tuple(_list_cases()), DIFFERENCES, UNUSED, REFUSED)
