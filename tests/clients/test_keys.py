"""Where the server asks for a key, clients send it in their own ways, and say when it is the wrong one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.inputs import DOCUMENTS, RERANKER, TEXTS
from clients.tables import at_its_size, cases
from support.client_packages import drive, driver_and_group
from support.http_server import HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings

KEY = "none is asked"  # what the drivers send


ADMITTED = {
    "cohere": ["embed v2"],
    "mistralai": ["embed"],
    "voyageai": ["embed"],
    "langchain": ["embed"],
    "langchain_providers": ["embed cohere", "embed jina", "embed mistral", "embed voyage"],
    "ai_sdk@npm": ["embed openai", "embed openai-compatible", "embed cohere"],
    "cohere_ai@npm": ["embed v2"],
    "huggingface_inference@npm": ["embed"],
    "llamaindex@npm": ["embed"],
    "voyageai@npm": ["embed"],
    "llama_index": ["embed", "rerank"],  # whose reranker sends the bare key
    "haystack": ["embed", "tei", "rerank"],
    "agno": ["embed", "jina"],
    "chromadb": ["tei"],
    "pydantic_ai": ["embed"],
    "rerankers": ["rerank cohere", "rerank pinecone"],  # pinecone has a header of its own
}
# What each raises.
REFUSED = [
    ("cohere", "embed v2", "UnauthorizedError"),
    ("huggingface_hub", "embed", "HfHubHTTPError"),
    ("mistralai", "embed", "SDKError"),
    ("ollama", "embed", "ResponseError"),
    ("openai", "embed", "AuthenticationError"),
    ("voyageai", "embed", "AuthenticationError"),
    ("langchain", "embed", "AuthenticationError"),
    ("langchain", "infinity", "Exception"),
    ("langchain_providers", "embed cohere", "UnauthorizedError"),
    ("langchain_providers", "embed jina", "RuntimeError"),
    ("langchain_providers", "embed ollama", "ResponseError"),
    ("langchain_providers", "embed voyage", "AuthenticationError"),
    ("ai_sdk@npm", "embed openai", "APICallError"),
    ("ai_sdk@npm", "embed openai-compatible", "APICallError"),
    ("ai_sdk@npm", "embed cohere", "APICallError"),
    ("cohere_ai@npm", "embed v2", "UnauthorizedError"),
    ("huggingface_inference@npm", "embed", "InferenceClientProviderApiError"),
    ("llamaindex@npm", "embed", "AuthenticationError"),
    ("voyageai@npm", "embed", "VoyageAIError"),
    ("infinity_client", "error", "UnexpectedStatus"),
    ("llama_index", "embed", "AuthenticationError"),
    ("litellm", "embed openai", "AuthenticationError"),
    ("litellm", "embed hosted_vllm", "AuthenticationError"),
    ("haystack", "embed one by one", "AuthenticationError"),
    ("haystack", "rerank", "RuntimeError"),
    ("agno", "embed one by one", "EmbeddingError"),
    ("chromadb", "embed", "AuthenticationError"),
    ("dspy", "embed", "AuthenticationError"),
    ("lancedb", "embed", "AuthenticationError"),
    ("mem0", "embed", "AuthenticationError"),
    ("pydantic_ai", "embed", "ModelHTTPError"),
    ("semantic_kernel", "embed", "ServiceResponseException"),
    ("txtai", "embed", "AuthenticationError"),
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


@pytest.mark.parametrize(("client", "call"), cases(ADMITTED))
def test_the_right_key_is_known(friendly: HttpServer, tmp_path: Path, client: str, call: str) -> None:
    count = len(DOCUMENTS if call.startswith("rerank") else TEXTS)
    url = f"http://127.0.0.1:{friendly.port}"
    assert len(drive(*driver_and_group(client), url, tmp_path, call)[call].unwrap()) == count


@pytest.mark.parametrize(("client", "call", "kind"), [at_its_size(*each) for each in REFUSED])
def test_the_wrong_key_is_the_clients_own_error(
    closed: HttpServer, tmp_path: Path, client: str, call: str, kind: str
) -> None:
    url = f"http://127.0.0.1:{closed.port}"
    error = drive(*driver_and_group(client), url, tmp_path, call)[call].raised()
    assert kind in error.types, error
    assert "API key" in error.message
