"""Where the server asks for a key, clients send it in their own ways, and say when it is the wrong one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.inputs import DOCUMENTS, RERANKER, TEXTS
from support.client_packages import drive, driver_and_group
from support.http_server import HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings

KEY = "none is asked"  # what the drivers send


def full(*values: Any) -> Any:
    """Arguments of a test at full size."""
    return pytest.param(*values, marks=pytest.mark.full)


# A driver, its call, and how many answers there are.
ADMITTED = [
    ("cohere", "embed v2", len(TEXTS)),
    ("mistralai", "embed", len(TEXTS)),
    ("voyageai", "embed", len(TEXTS)),
    full("langchain", "embed", len(TEXTS)),
    full("langchain_providers", "embed cohere", len(TEXTS)),
    full("langchain_providers", "embed jina", len(TEXTS)),
    full("langchain_providers", "embed mistral", len(TEXTS)),
    full("langchain_providers", "embed voyage", len(TEXTS)),
    full("ai_sdk@npm", "embed openai", len(TEXTS)),
    full("ai_sdk@npm", "embed openai-compatible", len(TEXTS)),
    full("ai_sdk@npm", "embed cohere", len(TEXTS)),
    full("cohere_ai@npm", "embed v2", len(TEXTS)),
    full("huggingface_inference@npm", "embed", len(TEXTS)),
    full("llamaindex@npm", "embed", len(TEXTS)),
    full("voyageai@npm", "embed", len(TEXTS)),
    full("llama_index", "embed", len(TEXTS)),
    full("llama_index", "rerank", len(DOCUMENTS)),  # which sends the bare key
    full("haystack", "embed", len(TEXTS)),
    full("haystack", "tei", len(TEXTS)),
    full("haystack", "rerank", len(DOCUMENTS)),
    full("agno", "embed", len(TEXTS)),
    full("agno", "jina", len(TEXTS)),
    full("chromadb", "tei", len(TEXTS)),
    full("pydantic_ai", "embed", len(TEXTS)),
    full("rerankers", "rerank cohere", len(DOCUMENTS)),
    full("rerankers", "rerank pinecone", len(DOCUMENTS)),  # which has a header of its own
]
# What each raises.
REFUSED = [
    ("cohere", "embed v2", "UnauthorizedError"),
    ("huggingface_hub", "embed", "HfHubHTTPError"),
    ("mistralai", "embed", "SDKError"),
    ("ollama", "embed", "ResponseError"),
    ("openai", "embed", "AuthenticationError"),
    ("voyageai", "embed", "AuthenticationError"),
    full("langchain", "embed", "AuthenticationError"),
    full("langchain", "infinity", "Exception"),
    full("langchain_providers", "embed cohere", "UnauthorizedError"),
    full("langchain_providers", "embed jina", "RuntimeError"),
    full("langchain_providers", "embed ollama", "ResponseError"),
    full("langchain_providers", "embed voyage", "AuthenticationError"),
    full("ai_sdk@npm", "embed openai", "APICallError"),
    full("ai_sdk@npm", "embed openai-compatible", "APICallError"),
    full("ai_sdk@npm", "embed cohere", "APICallError"),
    full("cohere_ai@npm", "embed v2", "UnauthorizedError"),
    full("huggingface_inference@npm", "embed", "InferenceClientProviderApiError"),
    full("llamaindex@npm", "embed", "AuthenticationError"),
    full("voyageai@npm", "embed", "VoyageAIError"),
    full("infinity_client", "error", "UnexpectedStatus"),
    full("llama_index", "embed", "AuthenticationError"),
    full("litellm", "embed openai", "AuthenticationError"),
    full("litellm", "embed hosted_vllm", "AuthenticationError"),
    full("haystack", "embed one by one", "AuthenticationError"),
    full("haystack", "rerank", "RuntimeError"),
    full("agno", "embed one by one", "EmbeddingError"),
    full("chromadb", "embed", "AuthenticationError"),
    full("dspy", "embed", "AuthenticationError"),
    full("lancedb", "embed", "AuthenticationError"),
    full("mem0", "embed", "AuthenticationError"),
    full("pydantic_ai", "embed", "ModelHTTPError"),
    full("semantic_kernel", "embed", "ServiceResponseException"),
    full("txtai", "embed", "AuthenticationError"),
]


def serve(key: str) -> Iterator[HttpServer]:
    """A server that asks for `key`."""
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=(key,), alias=(RERANKER,))) as server:
        yield server


@pytest.fixture(scope="module")
def friendly() -> Iterator[HttpServer]:
    yield from serve(KEY)


@pytest.fixture(scope="module")
def closed() -> Iterator[HttpServer]:
    yield from serve("another key")


@pytest.mark.parametrize(("client", "call", "count"), ADMITTED)
def test_the_right_key_is_known(
    friendly: HttpServer, tmp_path: Path, client: str, call: str, count: int
) -> None:
    url = f"http://127.0.0.1:{friendly.port}"
    assert len(drive(*driver_and_group(client), url, tmp_path, call)[call].unwrap()) == count


@pytest.mark.parametrize(("client", "call", "kind"), REFUSED)
def test_the_wrong_key_is_the_clients_own_error(
    closed: HttpServer, tmp_path: Path, client: str, call: str, kind: str
) -> None:
    url = f"http://127.0.0.1:{closed.port}"
    error = drive(*driver_and_group(client), url, tmp_path, call)[call].raised()
    assert kind in error.types, error
    assert "API key" in error.message
