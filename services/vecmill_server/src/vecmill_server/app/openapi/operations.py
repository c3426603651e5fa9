"""The vocabulary of operations in the OpenAPI document: their groups, parameters, responses and headers."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from vecmill_server.base.error_responses import ERROR_BODY, LONGEST_RETRY_S
from vecmill_server.base.json_schema import COUNT, NUMBER, STRING, Component, Schema, any_of, like

_V1 = "The base URL of clients ends in `/v1`."
_ROOT = "The base URL of clients is the address of the server."


class Api(StrEnum):
    """An API, with the `note` of its group at `/docs`. The order of the members is that of the groups."""

    note: str

    def __new__(cls, name: str, note: str) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.note = name, note
        return member

    OPENAI = "OpenAI", _V1
    AZURE = "Azure OpenAI", f"Azure's paths of OpenAI's API. {_ROOT}"
    COHERE = "Cohere", _ROOT
    JINA = "Jina", _V1
    VOYAGE = "Voyage", _V1
    MISTRAL = "Mistral", _ROOT
    TEI = "TEI", f"Hugging Face's Text Embeddings Inference. {_ROOT}"
    INFINITY = "Infinity", _ROOT
    VLLM = "vLLM", _ROOT
    OLLAMA = "Ollama", _ROOT
    WEAVIATE = "Weaviate", "The modules reranker-transformers and multi2vec-clip."
    LLAMA_CPP = "llama.cpp", _ROOT
    MIXEDBREAD = "Mixedbread", _ROOT
    NVIDIA = "NVIDIA", _ROOT
    DEEPINFRA = "DeepInfra", _ROOT
    PINECONE = "Pinecone", _ROOT
    FIREWORKS = "Fireworks", _ROOT
    ALIBABA = "Alibaba", f"Model Studio (DashScope). {_ROOT}"
    FLAG_EMBEDDING = (
        "FlagEmbedding",
        f"The outputs of BGE-M3, named as in `BGEM3FlagModel.encode`. {_ROOT}",
    )
    CLOUD = "Cloud platforms", "Hugging Face Inference Endpoints, SageMaker and Vertex AI."
    BATCHES = "Files and batches", "OpenAI's Batch API. It needs a server with the option `--batch-dir`."
    SERVER = "Server", "Probes, metrics and this documentation."
    OTHER_PATHS = "Other paths", "The same operations at the other paths that clients use."


# Operations by method and path.
Paths = Mapping[str, Mapping[str, dict[str, Any]]]

# The key of an operation that is the same as the operation of another path: that path.
ALIAS_OF = "x-alias-of"


def get(
    summary: str,
    content: Mapping[str, Any],
    *,
    errors: Mapping[str, str] | None = None,
    parameters: Sequence[Schema] = (),
    apis: Sequence[Api] = (Api.SERVER,),
) -> dict[str, Any]:
    """Return a GET operation. `errors` maps statuses other than 200 to their descriptions."""
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": list(apis),
        "responses": {
            "200": {"description": "Done", "content": content},
            **{status: describe_error(text) for status, text in (errors or {}).items()},
        },
    }
    return operation | {"parameters": list(parameters)} if parameters else operation


def at(*paths: str, **operations: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the same operations, by method, at each of `paths`. All but the first path are aliases."""
    main, *others = paths
    aliases = {method: {**operation, ALIAS_OF: main} for method, operation in operations.items()}
    return {main: dict(operations), **{path: dict(aliases) for path in others}}


def describe_error(description: str, bodies: Iterable[Component] = (ERROR_BODY,)) -> dict[str, Any]:
    """Return an error response with one of these bodies."""
    return {"description": description, "content": as_json(any_of(*bodies))}


def as_json(schema: Any) -> dict[str, Any]:
    """Return a JSON body of this schema."""
    return {"application/json": {"schema": like(schema)}}


def as_bytes() -> dict[str, Any]:
    """Return a body of bytes."""
    return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def header_parameter(name: str, schema: Schema) -> dict[str, Any]:
    """Return an optional request header."""
    return {"name": name, "in": "header", "required": False, "schema": schema}


def path_parameter(name: str) -> dict[str, Any]:
    """Return a path parameter."""
    return {"name": name, "in": "path", "required": True, "schema": STRING}


_ON_ALL = ("x-request-id", "request-id")
_RETRY = ("retry-after", "retry-after-ms")
_BY_STATUS: Mapping[str, tuple[str, ...]] = {
    "409": ("x-should-retry",),
    "424": (*_RETRY, "x-should-retry"),
    "429": _RETRY,
    "500": (*_RETRY, "x-should-retry"),
    "503": _RETRY,
}

_HEADERS: Mapping[str, tuple[Schema, str]] = {
    "x-request-id": (STRING, "The id of this request in the log."),
    "request-id": (STRING, "The same id."),
    "retry-after": (
        {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S},
        "Seconds until another attempt may succeed.",
    ),
    "retry-after-ms": (
        {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S * 1000},
        "`retry-after` in milliseconds.",
    ),
    "x-should-retry": (
        {"type": "string", "enum": ["false"]},
        "Present if another attempt would fail in the same way.",
    ),
    "x-compute-time": (
        NUMBER,
        "Seconds in the engine; on TEI's routes and /embeddings, milliseconds of the request.",
    ),
    "server-timing": (STRING, "Milliseconds of tokenize, queue, inference and total."),
    "x-space": (STRING, "The space of the vectors; absent if the answer has none."),
    "x-space-exact": (STRING, "The space of the vectors and the way of their computation."),
    "x-prompt-name": (STRING, "The name of the prompt before the texts; absent if there was none."),
    "x-truncated-inputs": (
        {"type": "integer", "minimum": 1},
        "The number of inputs that were longer than their limit and were cut; absent if none was.",
    ),
    "x-truncated": (
        STRING,
        "The inputs that were cut, up to 64, and the tokens that each lost. 0=34,7>=120 means 34 tokens of "
        "the first input, and at least 120 of the eighth.",
    ),
    "x-cached-inputs": (
        {"type": "integer", "minimum": 1},
        "The number of inputs whose embedding was in the embedding cache; absent if none was.",
    ),
    "x-unknown-fields": (
        STRING,
        "Unknown fields of the body: up to eight names, and the number of the others after a plus sign.",
    ),
    "metadata": (
        STRING,
        "With `encoding_format` bytes: the JSON object around the embeddings, with the place of each.",
    ),
    "x-compute-type": (STRING, "The device, such as cpu or cuda:0."),
    "x-compute-characters": (COUNT, "Characters of the texts."),
    "x-compute-tokens": (COUNT, "Tokens of the texts."),
    "x-total-time": (COUNT, "Milliseconds of the request."),
    "x-tokenization-time": (COUNT, "Milliseconds of tokenization."),
    "x-queue-time": (COUNT, "Milliseconds in the queue."),
    "x-inference-time": (COUNT, "Milliseconds in the engine."),
    "content-disposition": (STRING, "The name of the file."),
    "accept-ranges": (STRING, "bytes"),
    "content-range": (STRING, "The part of the file that is sent, or the size of the file in bytes."),
    "last-modified": (STRING, "The time at which the file was written."),
    "etag": (STRING, "A tag that changes with the file."),
    "content-security-policy": (STRING, "Allows the page to load only from this server."),
    "cache-control": (STRING, "The time for which the response may be cached."),
    "referrer-policy": (STRING, "no-referrer"),
    "x-content-type-options": (STRING, "nosniff"),
}


def describe_headers() -> dict[str, Any]:
    """Return the description of every response header, by its name."""
    return {name: {"schema": schema, "description": text} for name, (schema, text) in _HEADERS.items()}


def headers(names: Iterable[str]) -> dict[str, Any]:
    """Return references to the headers of these names."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def with_headers(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation with the headers of all responses, and those of each status."""
    responses = {
        status: {
            **response,
            "headers": {**headers((*_ON_ALL, *_BY_STATUS.get(status, ()))), **response.get("headers", {})},
        }
        for status, response in operation["responses"].items()
    }
    return {**operation, "responses": responses}
