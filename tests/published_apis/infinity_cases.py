"""Requests of Infinity's clients, and the intended differences from Infinity's document."""

from collections.abc import Iterator, Mapping
from typing import Any

from published_apis.cases import ApiCases, Case, Difference, shorten
from published_apis.servers import MOST_BODY_BYTES, MOST_INPUTS, POISON

WRONG_FIELD = "the status and the body of wrong fields"
UNKNOWN_MODEL = "the status of an unknown model"
NO_MEDIA = "images and audio"
ENGINE_FAILED = "the status of a failed engine"
TOO_LARGE = "the status of a body that is too large"
BUSY = "the status of a full queue"
LOADING = "the status while a model loads"
DOCUMENTS = "documents of /rerank as objects"
LABELS = "labels of /classify without raw_scores"
STATES = "the states of models at /health while one is not well"

# Infinity's errors have a list at `detail`, and a document of its own for the status 422 alone.
_ERROR = ("detail: type",)

DIFFERENCES: Mapping[str, Difference] = {
    WRONG_FIELD: Difference(
        "The paths are those of OpenAI's, Cohere's and Jina's clients too, which expect a 400, with a string "
        "at `detail` or OpenAI's object at `error`.",
        ("status 400", *_ERROR),
    ),
    UNKNOWN_MODEL: Difference(
        "Infinity says 400 in this case, which its document leaves out. OpenAI's clients expect a 404.",
        ("status 404", *_ERROR),
    ),
    ENGINE_FAILED: Difference(
        "Infinity answers 500 too, which its document leaves out.", ("status 500", *_ERROR)
    ),
    TOO_LARGE: Difference("Infinity has no limit on the bytes of a body.", ("status 413", *_ERROR)),
    BUSY: Difference("Infinity answers 429 too, which its document leaves out.", ("status 429", *_ERROR)),
    LOADING: Difference("Infinity opens its port when its models are loaded.", ("status 503",)),
    NO_MEDIA: Difference("The server reads no audio.", ("status 404", *_ERROR)),
    DOCUMENTS: Difference(
        "Cohere's, Jina's and vLLM's clients read an object. `--rerank-document string` gives strings.",
        ("results/*/document: anyOf",),
    ),
    LABELS: Difference(
        "vLLM's clients use the path too, and send no `raw_scores`, which Infinity's clients always send.",
        ("object: const", "object: enum", "data/*: type"),
    ),
    STATES: Difference(
        "Infinity ends when a model cannot be loaded. The server goes on with the others, and says which "
        "model is not well.",
        ("status: type", "models: type"),
    ),
}

# Statuses that Infinity's document has and that no request gets, each with its reason.
UNUSED: Mapping[tuple[str, int], str] = {
    **{
        (f"POST {path}", 422): "A wrong field is a 400, which the other clients at the path expect."
        for path in ("/embeddings", "/embeddings_image", "/rerank", "/classify")
    },
    ("POST /embeddings_image", 200): "It needs a model of pictures, which none of the servers has.",
    **{
        ("POST /embeddings_audio", status): "There is no such path: the server reads no audio."
        for status in (200, 422)
    },
}
REFUSED: Mapping[tuple[str, str], str] = {
    (f"POST {path}", name): reason
    for path, reason in (
        ("/embeddings_image", "It needs a model of pictures, which none of the servers has."),
        ("/embeddings_audio", "There is no such path: the server reads no audio."),
    )
    for name in ("input", "model", "encoding_format", "user")
}

UNSPECIFIED = "default/not-specified"
_TEXTS = ["a text", "another text"]
_TOO_MANY = ["a"] * (MOST_INPUTS + 1)
_LONG = "a " * MOST_BODY_BYTES
_TEXT = {"modality": "text"}
_PAIR = {"query": "a text", "documents": _TEXTS}
_IMAGE = "data:image/png;base64,AAAA"
_FULL = "full of texts to embed"
_STRINGS = "documents as strings"

Body = dict[str, Any]

_OBJECT: Body = {}

_GOOD: Mapping[str, tuple[Body, ...]] = {
    "/embeddings": (
        *({"input": value, **_TEXT} for value in ("a text", _TEXTS, [""], "word " * 300)),
        *({"input": _TEXTS, "encoding_format": value, **_TEXT} for value in ("float", "base64")),
        *({"input": _TEXTS, "dimensions": size, **_TEXT} for size in (0, 4)),
        *({"input": _TEXTS, "user": name, **_TEXT} for name in (None, "me")),
        *({"input": _TEXTS, "model": name, **_TEXT} for name in (UNSPECIFIED, "model/embed")),
        {"input": _TEXTS, "model": "model/multi_vector", **_TEXT},
    ),
    "/rerank": (
        _PAIR,
        *({**_PAIR, "return_documents": False, "raw_scores": value} for value in (True, False)),
        *({**_PAIR, "top_n": count} for count in (None, 1, 5)),
        *({**_PAIR, "model": name} for name in (UNSPECIFIED, "model/rerank", "model/embed")),
    ),
    "/classify": tuple(
        {"input": _TEXTS, "model": name, "raw_scores": value}
        for name in (UNSPECIFIED, "model/classify")
        for value in (True, False)
    ),
}
_BAD: Mapping[str, tuple[Body, ...]] = {
    "/embeddings": (
        *({"input": value} for value in (None, 5, [], _OBJECT, [5], _TOO_MANY)),
        *({"input": "a", name: "?"} for name in ("encoding_format", "dimensions", "modality")),
        {"input": "a", "model": "model/rerank"},
        *({"input": _IMAGE, "modality": value} for value in ("image", "audio")),
    ),
    "/rerank": (
        {"documents": ["a"]},
        *({"query": "a", "documents": value} for value in (None, 5, [], _TOO_MANY)),
        *({**_PAIR, name: "?"} for name in ("top_n", "return_documents", "raw_scores")),
        {**_PAIR, "model": "model/classify"},
    ),
    "/classify": (
        *({"input": value, "raw_scores": False} for value in (None, 5, [], _TOO_MANY)),
        {"input": ["a"], "raw_scores": "?"},
        {"input": ["a"], "raw_scores": False, "model": "model/embed"},
    ),
}
# The shortest body for each path, with the text that makes it fail or too large.
_SHORT: Mapping[str, Any] = {
    "/embeddings": lambda text: {"input": [text]},
    "/rerank": lambda text: {"query": text, "documents": ["a"]},
    "/classify": lambda text: {"input": [text], "raw_scores": False},
}


def _case(path: str, status: int, body: Body, **more: Any) -> Case:
    return Case("infinity", f"POST {path}", status, shorten(body), json=body, **more)


def _list_cases() -> Iterator[Case]:
    for path, bodies in _GOOD.items():
        for body in bodies:
            yield _case(path, 200, body)
    for path, bodies in _BAD.items():
        for body in bodies:
            yield _case(path, 400, body, differs=WRONG_FIELD)
    for path, make in _SHORT.items():
        yield _case(path, 404, {**make("a"), "model": "nobody"}, differs=UNKNOWN_MODEL)
        yield _case(path, 200, {**make("a"), "model": "nobody"}, server="any model name")
        yield _case(path, 500, make(POISON), differs=ENGINE_FAILED)
        yield _case(path, 413, make(_LONG), differs=TOO_LARGE)
        full = "full of texts to classify" if path == "/classify" else _FULL
        yield _case(path, 429, make("a"), server=full, differs=BUSY)
    yield _case("/rerank", 200, {**_PAIR, "return_documents": True}, differs=DOCUMENTS)
    yield _case("/rerank", 200, {**_PAIR, "return_documents": True}, server=_STRINGS)
    yield _case("/classify", 200, {"input": _TEXTS}, differs=LABELS)
    yield _case("/embeddings_image", 400, {"input": _IMAGE}, differs=WRONG_FIELD)
    yield _case("/embeddings_image", 404, {"input": _IMAGE, "model": "nobody"}, differs=UNKNOWN_MODEL)
    yield _case("/embeddings_image", 413, {"input": _LONG}, differs=TOO_LARGE)
    yield _case("/embeddings_audio", 404, {"input": _IMAGE}, differs=NO_MEDIA)
    yield from _cases_of_the_server()


def _cases_of_the_server() -> Iterator[Case]:
    for path in ("/", "/health", "/models", "/metrics"):
        for server in ("every task", "embedder alone", "reranker alone"):
            yield Case("infinity", f"GET {path}", 200, server, server=server)
    yield Case("infinity", "GET /health", 200, "a failed model", server="one model failed", differs=STATES)
    yield Case("infinity", "GET /models", 200, "a failed model", server="one model failed")
    for path in ("/", "/health"):
        yield Case("infinity", f"GET {path}", 503, "loading", server="loading", differs=LOADING)


INFINITY = ApiCases(tuple(_list_cases()), DIFFERENCES, UNUSED, REFUSED)
