"""`/voyage/v1`: clients of Voyage whose rerank looks like Cohere's, with their requests as they send them."""

from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import row_of
from support.http_server import DIM, MODEL, post

DOCUMENTS = ["world", "hello"]

# Without options the bodies of these clients have no key that tells them from Cohere's.
REQUESTS: dict[str, dict[str, Any]] = {
    # `new VoyageAIClient({ environment: "URL/voyage/v1" }).rerank({ query, documents, model })`
    "the npm package": {"query": "hello", "documents": DOCUMENTS, "model": MODEL},
    # `apiBase: URL/voyage/v1/` of the provider voyage
    "Continue's provider": {"query": "hello", "documents": DOCUMENTS, "model": MODEL},
    # The same of the provider openai: its adapter reads `data` alone.
    "Continue's adapter": {"model": MODEL, "query": "hello", "documents": DOCUMENTS},
    # `litellm.rerank("voyage/...", api_base="URL/voyage")`
    "LiteLLM": {"model": MODEL, "query": "hello", "documents": DOCUMENTS, "return_documents": True},
    "the Python package": {
        "query": "hello",
        "documents": DOCUMENTS,
        "model": MODEL,
        "top_k": None,
        "truncation": True,
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_voyage_s_clients_read_data_at_voyage_s_path(client: httpx.Client, name: str) -> None:
    answer = post(client, "/voyage/v1/rerank", **REQUESTS[name])
    assert set(answer) == {"object", "data", "model", "usage"}
    in_input_order = sorted(answer["data"], key=lambda entry: int(entry["index"]))
    assert [entry["index"] for entry in in_input_order] == [0, 1]
    assert in_input_order[1]["relevance_score"] == pytest.approx(1, abs=1e-6)
    # Continue's provider requires documents, and does not ask for documents.
    assert [entry["document"] for entry in in_input_order] == DOCUMENTS


def test_the_options_are_voyage_s(client: httpx.Client) -> None:
    body = REQUESTS["the npm package"]
    (best,) = post(client, "/voyage/v1/rerank", **body, top_k=1, return_documents=True)["data"]
    assert (best["index"], best["document"]) == (1, "hello")
    (bare,) = post(client, "/voyage/v1/rerank", **body, top_k=1, return_documents=False)["data"]
    assert set(bare) == {"index", "relevance_score"}
    long = {**body, "documents": ["hello " * 300]}
    refusal = post(client, "/voyage/v1/rerank", status=400, **long, truncation=False)
    assert "maximum context length" in refusal["detail"]


def test_the_same_base_has_embeddings(client: httpx.Client) -> None:
    body: dict[str, Any] = {"input": ["hello"], "model": MODEL, "input_type": None, "truncation": True}
    (entry,) = post(client, "/voyage/v1/embeddings", **body)["data"]
    np.testing.assert_allclose(entry["embedding"], row_of("hello", DIM), rtol=1e-6)


def test_elsewhere_such_a_body_is_cohere_s(client: httpx.Client) -> None:
    assert "results" in post(client, "/v1/rerank", **REQUESTS["the npm package"])
