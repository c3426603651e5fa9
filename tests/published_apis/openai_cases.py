"""Requests of OpenAI's clients, and the intended differences from OpenAI's document.

Errors at statuses that the document leaves out are compared with its schema of errors.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from published_apis.cases import ApiCases, Case, Difference, shorten
from published_apis.servers import MOST_BODY_BYTES, MOST_INPUTS, POISON
from support.batches import request_line

BASE64 = "embeddings in base64"
EMPTY_FILES = "an empty list of files"
EMPTY_BATCHES = "an empty list of batches"
CONTENT = "the content of a file"

_NO_IDS = ("first_id: type", "last_id: type")

DIFFERENCES: Mapping[str, Difference] = {
    BASE64: Difference(
        "The document has the request field and leaves out its response, a string of base64, which OpenAI's "
        "packages ask for and read.",
        ("data/*/embedding: type",),
    ),
    EMPTY_FILES: Difference("An empty list has no first and no last id, so both are null.", _NO_IDS),
    EMPTY_BATCHES: Difference("An empty list has no first and no last id, so both are null.", _NO_IDS),
    CONTENT: Difference(
        "The content is sent as it is, in bytes. A JSON string of it is not what OpenAI's packages read.",
        ("the media type application/octet-stream",),
    ),
}

# Statuses that OpenAI's document has and that no request gets, each with its reason.
UNUSED: Mapping[tuple[str, int], str] = {
    ("DELETE /models/{model}", 200): "Models are not deleted over OpenAI's API.",
}
REFUSED: Mapping[tuple[str, str], str] = {}

MODEL = "model/embed"
_TEXTS = ["a text", "another text"]
_TOO_MANY = ["a"] * (MOST_INPUTS + 1)
_LONG = "a " * MOST_BODY_BYTES
_LINE = request_line("a", {"input": "a"}).encode()
_FULL = "full of texts to embed"
_NATIVE = "native token ids"
_BATCH = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
_AGE = {"anchor": "created_at", "seconds": 3600}

Body = dict[str, Any]

_OBJECT: Body = {}


def _embed(value: Any, **more: Any) -> Body:
    return {"model": MODEL, "input": value, **more}


_GOOD: tuple[Body, ...] = (
    *(_embed(value) for value in ("a text", _TEXTS, [""], "word " * 300)),
    *(_embed(_TEXTS, dimensions=size) for size in (1, 8)),
    _embed(_TEXTS, encoding_format="float"),
    _embed(_TEXTS, user="me"),
)
_BAD: tuple[Body, ...] = (
    *(_embed(value) for value in (None, 5, [], _OBJECT, [None], _TOO_MANY, [101, 2088], [[101], [2088]])),
    *(_embed("a", **{name: "?"}) for name in ("dimensions", "encoding_format")),
    *(_embed("a", dimensions=size) for size in (-1, 9)),
    {**_embed("a"), "model": 5},
    {**_embed("a"), "model": "model/rerank"},
)


def _list_cases() -> Iterator[Case]:
    yield from _cases_of_embeddings()
    yield from _cases_of_models()
    yield from _cases_of_files()
    yield from _cases_of_batches()


def _cases_of_embeddings() -> Iterator[Case]:
    def case(status: int, body: Body, **more: Any) -> Case:
        return Case("openai", "POST /embeddings", status, shorten(body), json=body, **more)

    for body in _GOOD:
        yield case(200, body)
    yield case(200, _embed(_TEXTS, encoding_format="base64"), differs=BASE64)
    for ids in ([101, 2088], [[101], [2088]]):
        yield case(200, _embed(ids), server=_NATIVE)
    for body in _BAD:
        yield case(400, body)
    yield case(404, {**_embed("a"), "model": "gpt-none"})
    yield case(200, {**_embed("a"), "model": "text-embedding-3-small"}, server="any model name")
    yield case(413, _embed(_LONG))
    yield case(429, {"input": "a"}, server=_FULL)
    yield case(500, _embed(POISON))
    yield case(503, {"input": "a"}, server="loading")


def _cases_of_models() -> Iterator[Case]:
    for server in ("every task", "reranker alone", "one model failed", "loading"):
        yield Case("openai", "GET /models", 200, server, server=server)
    yield Case("openai", "GET /models/{model}", 200, "known")
    yield Case("openai", "GET /models/{model}", 404, "unknown", ids={"model": "gpt-none"})
    yield Case("openai", "DELETE /models/{model}", 405, "known")


def _cases_of_files() -> Iterator[Case]:
    def case(status: int, about: str, *, purpose: str = "batch", **more: Any) -> Case:
        form = {"purpose": purpose, **more.pop("fields", {})}
        return Case("openai", "POST /files", status, about, form=form, **{"file": _LINE, **more})

    kept = {f"expires_after[{name}]": str(value) for name, value in _AGE.items()}
    yield case(200, "a file")
    yield case(200, "a file that expires", fields=kept)
    yield case(200, "an empty file", file=b"")
    for purpose in ("assistants", "fine-tune", "vision", "user_data", "evals"):
        yield case(400, f"for {purpose}", purpose=purpose)
    yield case(400, "kept for a minute", fields={**kept, "expires_after[seconds]": "60"})
    yield Case("openai", "POST /files", 400, "no form", json={"purpose": "batch"})
    yield case(404, "files are off", server="embedder alone")
    for path, differs in (("", None), ("/content", CONTENT)):
        operation = f"GET /files/{{file_id}}{path}"
        for name in ("file_id", "output_file_id"):
            yield Case("openai", operation, 200, name, ids={"file_id": f"{{{name}}}"}, differs=differs)
        yield Case("openai", operation, 404, "unknown", ids={"file_id": "file-none"})
    yield Case("openai", "DELETE /files/{file_id}", 200, "no longer", ids={"file_id": "{deleted_file_id}"})
    yield Case("openai", "DELETE /files/{file_id}", 404, "unknown", ids={"file_id": "file-none"})
    yield Case("openai", "DELETE /files/{file_id}", 409, "in use", server=_FULL)
    yield from _cases_of_a_list("/files", {"purpose": "batch_output"}, {"order": "asc"}, {"order": "desc"})
    yield Case("openai", "GET /files", 400, "order", query={"order": "up"})
    yield Case("openai", "GET /files", 200, "no files", server="no files", differs=EMPTY_FILES)


def _cases_of_a_list(path: str, *filters: Mapping[str, str]) -> Iterator[Case]:
    after = "{output_file_id}" if path == "/files" else "{failed_batch_id}"
    for query in ({}, {"limit": "1"}, {"after": after, "limit": "1"}, *filters):
        yield Case("openai", f"GET {path}", 200, f"{query}", query=query)
    for limit in ("0", "x"):
        yield Case("openai", f"GET {path}", 400, f"limit {limit}", query={"limit": limit})


def _cases_of_batches() -> Iterator[Case]:
    def create(status: int, body: Body, **more: Any) -> Case:
        return Case("openai", "POST /batches", status, shorten(body), json=body, **more)

    new: Body = {**_BATCH, "input_file_id": "{file_id}"}
    yield create(200, new)
    yield create(200, {**new, "metadata": {"who": "me"}})
    yield create(200, {**new, "metadata": None})
    yield create(200, {**new, "output_expires_after": _AGE})
    yield create(404, {**new, "input_file_id": "file-none"})
    yield create(400, {**new, "output_expires_after": {**_AGE, "seconds": 60}})
    yield create(400, {**new, "completion_window": "soon"})
    yield create(400, {**new, "endpoint": "/v1/chat/completions"})
    yield create(400, {**new, "metadata": {"who": 5}})
    yield create(404, new, server="embedder alone", ids={"file_id": "file-none"})
    for server, name in (("every task", "batch_id"), ("every task", "failed_batch_id"), (_FULL, "batch_id")):
        known = {"batch_id": f"{{{name}}}"}
        about = f"{name} of {server}"
        yield Case("openai", "GET /batches/{batch_id}", 200, about, ids=known, server=server)
    yield Case("openai", "GET /batches/{batch_id}", 404, "unknown", ids={"batch_id": "batch-none"})
    running = {"batch_id": "{cancelled_batch_id}"}
    yield Case("openai", "POST /batches/{batch_id}/cancel", 200, "running", server=_FULL, ids=running)
    yield Case("openai", "POST /batches/{batch_id}/cancel", 409, "ended")
    yield Case("openai", "POST /batches/{batch_id}/cancel", 404, "unknown", ids={"batch_id": "batch-none"})
    yield from _cases_of_a_list("/batches")
    yield Case("openai", "GET /batches", 200, "none", server="no files", differs=EMPTY_BATCHES)


OPENAI = ApiCases(tuple(_list_cases()), DIFFERENCES, UNUSED, REFUSED)
