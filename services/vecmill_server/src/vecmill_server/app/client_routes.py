"""The routes that the clients of each API call: which are served, and which are not, with the reason.

Served routes are those of the OpenAPI document, with the same paths. A request for a route that is not
served gets a 404 in the error body of its API. A sentence says why, and which routes of the API are served.
Source: the API references and the packages of the clients. docs/client-routes.md is written from this table.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from vecmill_server.app.openapi.operations import Api
from vecmill_server.base.error_responses import ErrorResponse, error_response, sentence_response
from vecmill_server.dialects.llama_cpp import llama_response

_TEXTS_AND_PICTURES = "this server embeds, ranks and classifies texts, and embeds and classifies pictures"
_NO_GENERATION = "this server generates no text"
_NO_STORE = "this server stores no vectors and no documents"
_NO_TRAINING = "this server trains no models"
_NO_CONTAINER = "it describes NVIDIA's own container"
_SEND_TO_ROOT = "send the body to POST / or /invocations"

_OPENAI_GENERATION = ("POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses")
_GENERATION = (*_OPENAI_GENERATION, "POST /v1/messages")
_LISTS = ("GET /v1/models", "GET /v1/models/{id}")


@dataclass(frozen=True, slots=True)
class ClientRoutes:
    """The routes that the clients of an API call, as method and path.

    `refused` has those that are not served, by the reason. `respond` makes the error body of the API.
    """

    served: tuple[str, ...]
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    respond: Callable[[BaseException], ErrorResponse] = error_response


TABLE: Mapping[Api, ClientRoutes] = {
    Api.OPENAI: ClientRoutes(
        (
            *("POST /v1/embeddings", *_LISTS, "GET /v1/files", "POST /v1/files", "GET /v1/files/{id}"),
            *("DELETE /v1/files/{id}", "GET /v1/files/{id}/content", "GET /v1/batches", "POST /v1/batches"),
            *("GET /v1/batches/{id}", "POST /v1/batches/{id}/cancel"),
        ),
        {
            _NO_GENERATION: _OPENAI_GENERATION,
            _TEXTS_AND_PICTURES: (
                *("POST /v1/images/generations", "POST /v1/images/edits", "POST /v1/images/variations"),
                *("POST /v1/audio/speech", "POST /v1/audio/transcriptions", "POST /v1/audio/translations"),
            ),
            "models that classify have /classify": ("POST /v1/moderations",),
            _NO_TRAINING: ("POST /v1/fine_tuning/jobs", "GET /v1/fine_tuning/jobs"),
            _NO_STORE: (
                "POST /v1/vector_stores",
                "GET /v1/vector_stores",
                "POST /v1/vector_stores/{id}/search",
            ),
            "files are sent whole, to /v1/files": ("POST /v1/uploads",),
        },
    ),
    Api.AZURE: ClientRoutes(
        (
            *("POST /openai/deployments/{model}/embeddings", "POST /openai/v1/embeddings"),
            *("POST /models/embeddings", "GET /models/info", "POST /openai/v1/rerank"),
            *("POST /models/images/embeddings", "POST /images/embeddings"),
            *("POST /providers/cohere/v2/rerank", "GET /openai/v1/models", "GET /openai/models"),
            *("POST /openai/files", "GET /openai/files/{id}", "GET /openai/files/{id}/content"),
            *("POST /openai/batches", "GET /openai/batches/{id}", "POST /openai/batches/{id}/cancel"),
        ),
        {
            _NO_GENERATION: (
                *("POST /openai/deployments/{model}/chat/completions", "POST /openai/v1/chat/completions"),
                *("POST /openai/deployments/{model}/completions", "POST /openai/v1/responses"),
                *("POST /models/chat/completions", "POST /openai/responses"),
            ),
            _TEXTS_AND_PICTURES: (
                *("POST /openai/deployments/{model}/images/generations",),
                *("POST /openai/deployments/{model}/audio/speech",),
                *("POST /openai/deployments/{model}/audio/transcriptions",),
            ),
            "any served model is a deployment": ("GET /openai/deployments",),
        },
    ),
    Api.COHERE: ClientRoutes(
        (
            *("POST /v1/embed", "POST /v2/embed", "POST /v1/rerank", "POST /v2/rerank", "POST /v1/tokenize"),
            *("POST /v1/detokenize", "POST /v1/check-api-key", *_LISTS),
        ),
        {
            _NO_GENERATION: (*("POST /v1/chat", "POST /v2/chat", "POST /v1/generate", "POST /v1/summarize"),),
            "/v1/batches embeds files": (
                "POST /v1/embed-jobs",
                "GET /v1/embed-jobs",
                "GET /v1/embed-jobs/{id}",
            ),
            _NO_STORE: ("GET /v1/datasets", "POST /v1/datasets", "GET /v1/connectors", "POST /v1/connectors"),
            _NO_TRAINING: ("GET /v1/finetuning/finetuned-models", "POST /v1/finetuning/finetuned-models"),
        },
    ),
    Api.JINA: ClientRoutes(
        ("POST /v1/embeddings", "POST /v1/rerank", "POST /v1/classify"),
        {
            "`chunking` at /v1/embeddings divides texts": ("POST /v1/segment",),
            _NO_TRAINING: ("POST /v1/train",),
        },
    ),
    Api.VOYAGE: ClientRoutes(
        (
            *("POST /v1/embeddings", "POST /v1/rerank", "POST /v1/multimodalembeddings"),
            *("POST /voyage/v1/embeddings", "POST /voyage/v1/rerank"),
            "POST /voyage/v1/multimodalembeddings",
        ),
        {
            "`late_chunking` at /v1/embeddings reads the chunks of a text together": (
                "POST /v1/contextualizedembeddings",
            ),
        },
    ),
    Api.MISTRAL: ClientRoutes(
        ("POST /v1/embeddings", *_LISTS),
        {
            _NO_GENERATION: (
                *("POST /v1/chat/completions", "POST /v1/fim/completions", "POST /v1/agents/completions"),
            ),
            _TEXTS_AND_PICTURES: ("POST /v1/ocr", "POST /v1/audio/transcriptions"),
            "models that classify have /classify": (
                *("POST /v1/classifications", "POST /v1/chat/classifications"),
                *("POST /v1/moderations", "POST /v1/chat/moderations"),
            ),
        },
    ),
    Api.TEI: ClientRoutes(
        (
            *(
                "POST /embed",
                "POST /embed_all",
                "POST /embed_sparse",
                "POST /predict",
                "POST /rerank",
                "POST /",
            ),
            *("POST /similarity", "POST /tokenize", "POST /decode", "POST /vertex", "POST /v1/embeddings"),
            *("POST /invocations", "GET /info", "GET /health", "GET /metrics"),
        ),
    ),
    Api.INFINITY: ClientRoutes(
        (
            *("POST /embeddings", "POST /embeddings_image", "POST /rerank", "POST /classify"),
            *("GET /models", "GET /health", "GET /metrics"),
        ),
        {_TEXTS_AND_PICTURES: ("POST /embeddings_audio",)},
    ),
    Api.VLLM: ClientRoutes(
        (
            *("POST /v1/embeddings", "POST /pooling", "POST /score", "POST /v1/score", "POST /classify"),
            *("POST /rerank", "POST /v1/rerank", "POST /v2/rerank", "POST /tokenize", "POST /detokenize"),
            *("POST /invocations", *_LISTS, "GET /version", "GET /health", "GET /ping", "GET /metrics"),
        ),
        {
            _NO_GENERATION: _GENERATION,
            _TEXTS_AND_PICTURES: ("POST /v1/audio/transcriptions", "POST /v1/audio/translations"),
            "adapters are given when the server starts": (
                *("POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter"),
            ),
            "GET /metrics has the load": ("GET /load", "GET /server_info"),
        },
    ),
    Api.OLLAMA: ClientRoutes(
        (
            *("POST /api/embed", "POST /api/embeddings", "GET /api/tags", "GET /api/ps", "POST /api/show"),
            *("GET /api/version", "POST /api/pull", "DELETE /api/delete", "POST /api/rerank", "GET /"),
        ),
        {
            _NO_GENERATION: ("POST /api/generate", "POST /api/chat"),
            "models are named when the server starts": (
                *("POST /api/create", "POST /api/copy", "POST /api/push"),
                *("HEAD /api/blobs/{digest}", "POST /api/blobs/{digest}"),
            ),
            "this server has no accounts": ("POST /api/me", "POST /api/signout"),
        },
        sentence_response,
    ),
    Api.WEAVIATE: ClientRoutes(
        (
            *("POST /rerank", "POST /vectorize"),
            *("GET /.well-known/ready", "GET /.well-known/live", "GET /meta"),
        ),
        {
            "the modules text2vec-openai and text2vec-ollama call /v1/embeddings and /api/embed": (
                *("POST /vectors", "POST /vectors/passage", "POST /vectors/query"),
            ),
            "of Weaviate's modules, this server has the routes of reranker-transformers and multi2vec-clip": (
                *("POST /answers", "POST /ner", "POST /sum", "POST /spellcheck"),
            ),
        },
        sentence_response,
    ),
    Api.LLAMA_CPP: ClientRoutes(
        (
            *("POST /embedding", "POST /embeddings", "POST /v1/embeddings", "POST /llamafile/embedding"),
            *("POST /rerank", "POST /reranking", "POST /v1/rerank", "POST /v1/reranking", "POST /tokenize"),
            *("POST /detokenize", "GET /health", "GET /v1/health", "GET /props", "GET /v1/models"),
            *("GET /models", "GET /metrics"),
        ),
        {
            _NO_GENERATION: (
                *("POST /completion", "POST /completions", "POST /infill", "POST /apply-template"),
                "POST /v1/messages/count_tokens",
            ),
            "there are no slots: GET /metrics has the load": ("GET /slots", "POST /slots/{id}"),
            "adapters are given when the server starts": ("GET /lora-adapters", "POST /lora-adapters"),
            "settings are given when the server starts": ("POST /props",),
        },
        llama_response,
    ),
    Api.MIXEDBREAD: ClientRoutes(
        ("POST /v1/embeddings", "POST /v1/reranking", "POST /reranking"),
        {
            _NO_STORE: ("POST /v1/stores", "GET /v1/stores", "POST /v1/stores/search"),
            _TEXTS_AND_PICTURES: ("POST /v1/parsing/jobs",),
        },
    ),
    Api.NVIDIA: ClientRoutes(
        (
            *("POST /v1/embeddings", "POST /v1/ranking", "POST /ranking", "GET /v1/models"),
            *("POST /v1/retrieval/{name}/reranking", "GET /v1/health/ready", "GET /v1/health/live"),
        ),
        {
            _NO_CONTAINER: ("GET /v1/metadata", "GET /v1/license", "GET /v1/manifest", "GET /v1/version"),
            "the metrics are at /metrics": ("GET /v1/metrics",),
        },
    ),
    Api.DEEPINFRA: ClientRoutes(
        ("POST /v1/inference/{model}", "POST /v1/openai/embeddings", "GET /v1/openai/models"),
        {
            _NO_GENERATION: ("POST /v1/openai/chat/completions", "POST /v1/openai/completions"),
            _TEXTS_AND_PICTURES: ("POST /v1/openai/images/generations",),
        },
    ),
    Api.PINECONE: ClientRoutes(
        (
            *("POST /pinecone/embed", "POST /pinecone/rerank", "GET /pinecone/models"),
            "GET /pinecone/models/{id}",
        ),
        {
            _NO_STORE: (
                *("GET /indexes", "POST /indexes", "GET /indexes/{name}", "POST /indexes/create-for-model"),
                *("GET /collections", "POST /vectors/upsert", "GET /vectors/fetch", "POST /query"),
                *("POST /describe_index_stats", "POST /records/namespaces/{namespace}/upsert"),
            ),
        },
    ),
    Api.FIREWORKS: ClientRoutes(
        ("POST /inference/v1/embeddings", "POST /inference/v1/rerank", "GET /inference/v1/models"),
        {_NO_GENERATION: ("POST /inference/v1/chat/completions", "POST /inference/v1/completions")},
    ),
    Api.ALIBABA: ClientRoutes(
        (
            "POST /api/v1/services/embeddings/text-embedding/text-embedding",
            *("POST /api/v1/services/rerank/text-rerank/text-rerank", "POST /compatible-api/v1/reranks"),
            *("POST /compatible-mode/v1/embeddings", "GET /compatible-mode/v1/models"),
        ),
        {
            _NO_GENERATION: (
                *("POST /api/v1/services/aigc/text-generation/generation",),
                *("POST /compatible-mode/v1/chat/completions",),
            ),
            _TEXTS_AND_PICTURES: (
                *("POST /api/v1/services/embeddings/multimodal-embedding/multimodal-embedding",),
                *("POST /api/v1/services/aigc/multimodal-generation/generation",),
            ),
            "/v1/batches embeds files": ("GET /api/v1/tasks/{id}", "POST /api/v1/tasks/{id}/cancel"),
        },
    ),
    Api.FLAG_EMBEDDING: ClientRoutes(("POST /encode", "POST /v1/encode")),
    Api.CLOUD: ClientRoutes(
        ("POST /", "POST /invocations", "GET /ping", "POST /vertex"),
        {
            _SEND_TO_ROOT: (
                *("POST /models/{id}", "POST /pipeline/{task}/{id}", "POST /models/{id}/pipeline/{task}"),
                "POST /hf-inference/models/{id}",
            ),
            "KServe's bodies are not read: /vertex takes `instances`": (
                *("POST /v1/models/{id}:predict", "POST /v2/models/{id}/infer"),
            ),
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The sentence about a route that is not served, and what makes the error body of its API."""

    sentence: str
    respond: Callable[[BaseException], ErrorResponse]


def find_refusal(method: str, path: str) -> Refusal | None:
    """Return the refusal of a route that clients call and that is not served; `None` for other routes."""
    exact, patterns = _refusals()
    found = exact.get((method, path))
    if found is not None:
        return found
    return next(
        (each for known, expression, each in patterns if known == method and expression.fullmatch(path)), None
    )


_Patterns = list[tuple[str, re.Pattern[str], Refusal]]


@cache
def _refusals() -> tuple[Mapping[tuple[str, str], Refusal], _Patterns]:
    """Return the refusals by method and path, and those of paths with parameters, longest path first."""
    exact: dict[tuple[str, str], Refusal] = {}
    patterns: dict[tuple[str, str], Refusal] = {}
    for method, path, refusal in _list_refusals():
        (patterns if "{" in path else exact).setdefault((method, path), refusal)
        if path.startswith("/v1/"):  # for a base URL without the version
            (patterns if "{" in path else exact).setdefault((method, path.removeprefix("/v1")), refusal)
    ordered = sorted(patterns.items(), key=lambda item: -len(item[0][1]))
    return exact, [(method, _to_expression(path), refusal) for (method, path), refusal in ordered]


def _list_refusals() -> Iterator[tuple[str, str, Refusal]]:
    for api, routes in TABLE.items():
        served = ", ".join(routes.served)
        for reason, refused in routes.refused.items():
            for route in refused:
                method, path = route.split(" ")
                sentence = f"{route} of {api} is not served: {reason}. Served of {api}: {served}."
                yield method, path, Refusal(sentence, routes.respond)


def _to_expression(path: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, re.split(r"{\w+}", path))))
