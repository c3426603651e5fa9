"""The requests of applications, as their sources send them, and what each application reads from the answer.

The sources: Open WebUI of 2026 (`retrieval/utils.py`, `retrieval/models/external.py`), Dify's plugins of
August 2026, RAGFlow of August 2026 (`rag/llm`, and `internal/entity/models` of its Go server), AnythingLLM of
August 2026 (`server/utils/EmbeddingEngines`), LibreChat of August 2026 (`agents`, and its RAG API),
Continue of June 2026 (`core/llm/llms`, `packages/openai-adapters`) and Roo-Code of April 2026
(`src/services/code-index`).

The name of a request is the application, and the provider that the user chooses there.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.http_server import MODEL

RERANKER = "reranker"
JINA = "jina-reranker-v2-base-multilingual"
# An alias for each name that an application does not let the user choose, or that must not have a slash.
ALIASES = (f"{RERANKER}=model/rerank", f"{JINA}=model/rerank")

TEXTS = ["hello", "world"]
QUERY = "hello"
DOCUMENTS = ["world", "cats"]
KEY = {"Authorization": "Bearer a-key"}

Headers = Mapping[str, str]
REQUESTS: Headers = {
    "User-Agent": "python-requests/2.32.5",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
}
AIOHTTP: Headers = {
    "User-Agent": "Python/3.11 aiohttp/3.13.2",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate, br",
}
GO: Headers = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}
AXIOS: Headers = {
    "User-Agent": "axios/1.12.2",
    "Accept": "application/json, text/plain, */*",
    "Accept-Encoding": "gzip, compress, deflate, br",
}
# The fetch of Node.js and of VS Code's extensions.
FETCH: Headers = {
    "User-Agent": "node",
    "Accept": "*/*",
    "Accept-Language": "*",
    "Sec-Fetch-Mode": "cors",
    "Accept-Encoding": "gzip, deflate",
}
CONTINUE_ADAPTER: Headers = {
    **FETCH,
    "Accept": "application/json",
    "x-api-key": "",
    "Authorization": "Bearer undefined",
}
OPENAI_NPM: Headers = {
    "User-Agent": "OpenAI/JS 4.95.1",
    "Accept": "application/json",
    "X-Stainless-Lang": "js",
    "X-Stainless-Retry-Count": "0",
    **KEY,
}
OPENAI_PYTHON: Headers = {
    "User-Agent": "OpenAI/Python 1.109.1",
    "Accept": "application/json",
    "X-Stainless-Lang": "python",
    "X-Stainless-Read-Timeout": "600",
    **KEY,
}
COHERE: Headers = {"User-Agent": "python-httpx/0.28.1", "Accept": "*/*", "X-Fern-Language": "Python", **KEY}
WEBUI_USER: Headers = {
    "X-OpenWebUI-User-Name": "A%20User",
    "X-OpenWebUI-User-Id": "6a1b",
    "X-OpenWebUI-User-Email": "user@example.org",
    "X-OpenWebUI-User-Role": "user",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an application. `read` returns what the application takes from the answer."""

    path: str
    body: Any
    read: Callable[[Any], Any]
    headers: Headers = field(default_factory=lambda: REQUESTS)


def read_floats(answer: Any) -> Any:
    return [entry["embedding"] for entry in answer["data"]]


def read_counted_floats(answer: Any) -> Any:
    """Dify and RAGFlow use the number of tokens without asking whether there is one."""
    assert type(answer["usage"]["total_tokens"]) is int
    return read_floats(answer)


def read_indexed_floats(answer: Any) -> Any:
    """RAGFlow's Go server refuses an answer without an index for each text."""
    assert sorted(entry["index"] for entry in answer["data"]) == list(range(len(answer["data"])))
    return read_floats(answer)


def read_base64(answer: Any) -> Any:
    return [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in answer["data"]]


def read_ollama(answer: Any) -> Any:
    assert isinstance(answer["prompt_eval_count"], int)
    return answer["embeddings"]


def read_cohere(answer: Any) -> Any:
    return answer["embeddings"]["float"]


def read_cohere_v1(answer: Any) -> Any:
    """Dify makes an integer of the tokens."""
    assert answer["response_type"] == "embeddings_floats"
    assert int(answer["meta"]["billed_units"]["input_tokens"]) > 0
    return answer["embeddings"]


def read_rows(answer: Any) -> Any:
    return answer


EMBEDDINGS: Mapping[str, Request] = {
    "Open WebUI, OpenAI": Request(
        "/v1/embeddings", {"input": TEXTS, "model": MODEL}, read_floats, {**AIOHTTP, **KEY, **WEBUI_USER}
    ),
    "Open WebUI, OpenAI, without a key": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL},
        read_floats,
        {**AIOHTTP, "Authorization": "Bearer"},
    ),
    # RAG_EMBEDDING_PREFIX_FIELD_NAME=input_type, RAG_EMBEDDING_QUERY_PREFIX=query
    "Open WebUI, OpenAI, with a prefix field": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "input_type": "query"},
        read_floats,
        {**AIOHTTP, **KEY},
    ),
    "Open WebUI, OpenAI, URL with a slash": Request(
        "/v1//embeddings", {"input": TEXTS, "model": MODEL}, read_floats, {**AIOHTTP, **KEY}
    ),
    "Open WebUI, Ollama": Request(
        "/api/embed", {"input": TEXTS, "model": MODEL, "truncate": True}, read_ollama, {**AIOHTTP, **KEY}
    ),
    "Open WebUI, Azure OpenAI": Request(
        f"/openai/deployments/{MODEL}/embeddings?api-version=2024-02-01",
        {"input": TEXTS},
        read_floats,
        {**AIOHTTP, "api-key": "a-key"},
    ),
    "Dify, OpenAI-API-compatible": Request(
        "/v1/embeddings", {"model": MODEL, "input": TEXTS}, read_floats, {**REQUESTS, "Authorization": ""}
    ),
    "Dify, OpenAI-API-compatible, format float": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "encoding_format": "float"},
        read_floats,
        {**REQUESTS, **KEY},
    ),
    "Dify, Text Embedding Inference": Request("/v1/embeddings", {"input": TEXTS}, read_counted_floats),
    "Dify, Xorbits Inference": Request(
        "/v1/embeddings", {"model": MODEL, "input": TEXTS}, read_counted_floats
    ),
    "Dify, Ollama": Request(
        "/api/embed",
        {"input": TEXTS, "model": MODEL, "truncate": True, "options": {"use_mmap": True}},
        read_ollama,
    ),
    "Dify, LocalAI": Request(
        "/embeddings",
        {"model": MODEL, "input": TEXTS[0]},
        read_counted_floats,
        {**REQUESTS, "Authorization": "Bearer 123"},
    ),
    "Dify, GPUStack": Request(
        "/v1/embeddings", {"model": MODEL, "input": TEXTS}, read_floats, {**REQUESTS, **KEY}
    ),
    "Dify, Jina": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": [{"text": text} for text in TEXTS]},
        read_counted_floats,
        {**REQUESTS, **KEY},
    ),
    "Dify, Jina, version 3": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "task": "retrieval.passage"},
        read_counted_floats,
        {**REQUESTS, **KEY},
    ),
    "Dify, Cohere": Request(
        "/v1/embed", {"texts": TEXTS, "model": MODEL, "input_type": "search_document"}, read_cohere_v1, COHERE
    ),
    "RAGFlow, OpenAI-API-Compatible and VLLM": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "encoding_format": "float", "drop_params": True},
        read_counted_floats,
        OPENAI_PYTHON,
    ),
    "RAGFlow, Xinference, LocalAI and LM-Studio": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "encoding_format": "base64"},
        read_base64,
        OPENAI_PYTHON,
    ),
    "RAGFlow, Ollama": Request(
        "/api/embed",
        {"model": MODEL, "input": TEXTS, "truncate": True, "options": {"use_mmap": True}, "keep_alive": -1},
        read_ollama,
    ),
    "RAGFlow, HuggingFace": Request("/embed", {"inputs": TEXTS}, read_rows),
    "RAGFlow, HuggingFace, a query": Request("/embed", {"inputs": TEXTS[0]}, read_rows),
    "RAGFlow's Go server, VLLM, LocalAI and Xinference": Request(
        "/v1/embeddings", {"model": MODEL, "input": TEXTS}, read_indexed_floats, {**GO, **KEY}
    ),
    "RAGFlow's Go server, Ollama": Request("/api/embed", {"model": MODEL, "input": TEXTS}, read_ollama, GO),
    "AnythingLLM, Generic OpenAI and LiteLLM": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "encoding_format": "base64"},
        read_base64,
        OPENAI_NPM,
    ),
    "AnythingLLM, Local AI": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "dimensions": None, "encoding_format": "float"},
        read_floats,
        OPENAI_NPM,
    ),
    "AnythingLLM, Ollama": Request(
        "/api/embed", {"model": MODEL, "input": TEXTS[:1], "options": {"num_ctx": 1000}}, read_ollama, FETCH
    ),
    # RAG_CHECK_EMBEDDING_CTX_LENGTH=false
    "LibreChat's rag_api, openai": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "encoding_format": "base64"},
        read_base64,
        OPENAI_PYTHON,
    ),
    "LibreChat's rag_api, ollama": Request(
        "/api/embed", {"model": MODEL, "input": TEXTS, "options": {}}, read_ollama
    ),
    "Continue, openai, vllm and lmstudio": Request(
        "/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "encoding_format": "base64"},
        read_base64,
        OPENAI_NPM,
    ),
    "Continue, ollama": Request("/api/embed", {"model": MODEL, "input": TEXTS}, read_ollama, FETCH),
    "Continue, huggingface-tei": Request("/embed", {"inputs": TEXTS}, read_rows, FETCH),
    "Continue, cohere": Request(
        "/v2/embed",
        {
            "texts": TEXTS,
            "model": MODEL,
            "input_type": "search_document",
            "embedding_types": ["float"],
            "truncate": "END",
        },
        read_cohere,
        {**FETCH, "Authorization": "Bearer undefined"},
    ),
    "Continue, voyage": Request(
        "/voyage/v1/embeddings",
        {"model": MODEL, "input": TEXTS, "encoding_format": "base64"},
        read_base64,
        OPENAI_NPM,
    ),
    "Roo-Code, OpenAI Compatible": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "encoding_format": "base64"},
        read_base64,
        OPENAI_NPM,
    ),
    "Roo-Code, OpenAI Compatible, the whole URL": Request(
        "/v1/embeddings",
        {"input": TEXTS, "model": MODEL, "encoding_format": "base64"},
        read_base64,
        {**FETCH, **KEY, "api-key": "a-key"},
    ),
    "Roo-Code, Ollama": Request("/api/embed", {"model": MODEL, "input": TEXTS}, read_ollama, FETCH),
}


def read_results(answer: Any) -> Any:
    return {entry["index"]: entry["relevance_score"] for entry in answer["results"]}


def read_results_with_objects(answer: Any) -> Any:
    """Dify takes the text of a document from an object, if the result has a document."""
    for entry in answer["results"]:
        assert entry["document"]["text"] == DOCUMENTS[entry["index"]]
    return read_results(answer)


def read_results_without_documents(answer: Any) -> Any:
    """Dify's Ollama plugin would take a document that is no string as the text."""
    assert all("document" not in entry for entry in answer["results"])
    return read_results(answer)


def read_voyage(answer: Any) -> Any:
    """Continue checks that each document is a string."""
    assert all(entry["document"] == DOCUMENTS[entry["index"]] for entry in answer["data"])
    return read_data(answer)


def read_data(answer: Any) -> Any:
    return {entry["index"]: entry["relevance_score"] for entry in answer["data"]}


def read_tei(answer: Any) -> Any:
    return {entry["index"]: entry["score"] for entry in answer}


def read_tei_with_text(answer: Any) -> Any:
    assert all(entry["text"] == DOCUMENTS[entry["index"]] for entry in answer)
    return read_tei(answer)


_PAIR = {"query": QUERY, "documents": DOCUMENTS}
_BOTH = {"model": RERANKER, **_PAIR, "top_n": 2}

RERANKS: Mapping[str, Request] = {
    "Open WebUI, external": Request("/v1/rerank", _BOTH, read_results, {**REQUESTS, **KEY, **WEBUI_USER}),
    "Dify, OpenAI-API-compatible": Request("/v1/rerank", _BOTH, read_results),
    "Dify, Text Embedding Inference": Request(
        "/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True}, read_tei_with_text
    ),
    "Dify, Xorbits Inference": Request(
        "/v1/rerank",
        {
            "model": RERANKER,
            "documents": DOCUMENTS,
            "query": QUERY,
            "top_n": None,
            "max_chunks_per_doc": None,
            "return_documents": True,
            "return_len": None,
            "kwargs": "{}",
        },
        read_results_with_objects,
    ),
    "Dify, Ollama": Request("/api/rerank", {"model": RERANKER, **_PAIR}, read_results_without_documents),
    "Dify, Ollama, with top_n": Request("/api/rerank", _BOTH, read_results_without_documents),
    "Dify, LocalAI": Request(
        "/rerank",
        {"model": RERANKER, **_PAIR, "top_n": None},
        read_results_without_documents,
        {**REQUESTS, **KEY},
    ),
    "Dify, GPUStack": Request(
        "/v1/rerank",
        {"model": RERANKER, **_PAIR, "top_n": 3},
        read_results_without_documents,
        {**REQUESTS, "Authorization": "Bearer None"},
    ),
    "Dify, Jina": Request(
        "/v1/rerank",
        {
            "model": RERANKER,
            "query": QUERY,
            "documents": [{"text": text} for text in DOCUMENTS],
            "top_n": None,
            "return_documents": False,
        },
        read_results,
        {**REQUESTS, **KEY},
    ),
    "Dify, Cohere": Request(
        "/v1/rerank", {**_BOTH, "return_documents": True}, read_results_with_objects, COHERE
    ),
    "RAGFlow, OpenAI-API-Compatible and GPUStack": Request(
        "/v1/rerank", _BOTH, read_results, {**REQUESTS, **KEY}
    ),
    "RAGFlow, LocalAI": Request("/rerank", _BOTH, read_results, {**REQUESTS, **KEY}),
    "RAGFlow, Xinference": Request(
        "/v1/rerank",
        {
            "model": RERANKER,
            "query": QUERY,
            "return_documents": "true",
            "return_len": "true",
            "documents": DOCUMENTS,
        },
        read_results,
    ),
    # Its client is Cohere's, which adds /v1 to the URL.
    "RAGFlow, VLLM": Request("/v1/v1/rerank", {**_BOTH, "return_documents": False}, read_results, COHERE),
    "RAGFlow, HuggingFace": Request(
        "/rerank", {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "truncate": True}, read_tei
    ),
    "RAGFlow's Go server, VLLM, LocalAI and Xinference": Request(
        "/v1/rerank", _BOTH, read_results, {**GO, **KEY}
    ),
    "LibreChat, Jina": Request(
        "/v1/rerank",
        {"model": JINA, "query": QUERY, "top_n": 5, "documents": DOCUMENTS, "return_documents": True},
        read_results_with_objects,
        {**AXIOS, **KEY},
    ),
    "Continue, vllm": Request("/v1/rerank", {"model": RERANKER, **_PAIR}, read_results, CONTINUE_ADAPTER),
    "Continue, cohere": Request(
        "/v2/rerank",
        {"model": RERANKER, **_PAIR},
        read_results,
        {**FETCH, "Authorization": "Bearer undefined"},
    ),
    "Continue, huggingface-tei": Request(
        "/rerank",
        {
            "query": QUERY,
            "return_text": False,
            "raw_scores": False,
            "texts": DOCUMENTS,
            "truncation_direction": "Right",
            "truncate": True,
        },
        read_tei,
        FETCH,
    ),
    "Continue, voyage": Request("/voyage/v1/rerank", {**_PAIR, "model": RERANKER}, read_voyage, FETCH),
    "Continue, openai": Request(
        "/voyage/v1/rerank", {"model": RERANKER, **_PAIR}, read_data, CONTINUE_ADAPTER
    ),
}
