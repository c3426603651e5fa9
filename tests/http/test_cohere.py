"""Cohere's clients, versions 1 and 2: embed, rerank and tokenize."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import row_of
from support.http_server import DIM, MODEL, post

TEXTS = ["hello", "hello world"]


def test_version_1_gives_plain_rows_unless_types_are_named(client: httpx.Client) -> None:
    answer = post(client, "/v1/embed", texts=TEXTS, model=MODEL, input_type="search_document")
    assert set(answer) == {"id", "response_type", "embeddings", "texts", "meta"}
    assert answer["response_type"] == "embeddings_floats"
    assert isinstance(answer["id"], str)
    assert answer["texts"] == TEXTS
    assert answer["meta"] == {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 7}}
    np.testing.assert_allclose(answer["embeddings"], [row_of(text, DIM) for text in TEXTS], rtol=1e-6)
    typed = post(client, "/v1/embed", texts=TEXTS, embedding_types=["float"])
    assert typed["response_type"] == "embeddings_by_type"
    assert typed["embeddings"] == {"float": answer["embeddings"]}


def test_version_2_always_gives_rows_by_type(client: httpx.Client) -> None:
    answer = post(client, "/v2/embed", texts=TEXTS, model=MODEL, input_type="search_query")
    assert set(answer) == {"id", "response_type", "embeddings", "texts", "meta"}
    assert answer["response_type"] == "embeddings_by_type"
    assert set(answer["embeddings"]) == {"float"}
    assert answer["meta"]["api_version"] == {"version": "2"}
    assert answer["meta"]["billed_units"] == {"input_tokens": 7, "image_tokens": 0}


@pytest.mark.parametrize("path", ["/v1/embed", "/v2/embed", "/v1/v1/embed", "/v1/v2/embed", "/v2/embed/"])
def test_every_type_says_the_same_rows(client: httpx.Client, path: str) -> None:
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    found = post(client, path, texts=TEXTS, input_type="clustering", embedding_types=types)["embeddings"]
    assert set(found) == set(types)
    rows = np.array(found["float"], np.float32)
    unpacked = [np.frombuffer(base64.b64decode(text, validate=True), "<f4") for text in found["base64"]]
    np.testing.assert_array_equal(unpacked, rows)
    packed = np.packbits(rows > 0, axis=-1)
    np.testing.assert_array_equal(found["ubinary"], packed)
    np.testing.assert_array_equal(found["binary"], packed.astype(np.int16) - 128)
    np.testing.assert_array_equal(found["int8"], np.array(found["uint8"]) - 128)
    assert np.corrcoef(np.ravel(found["uint8"]), rows.ravel())[0, 1] > 0.95


def test_rows_of_8_bits_do_not_depend_on_their_company(client: httpx.Client) -> None:
    def embed(*texts: str) -> list[list[int]]:
        body: dict[str, Any] = {"texts": texts, "embedding_types": ["int8"]}
        rows: list[list[int]] = post(client, "/v2/embed", **body)["embeddings"]["int8"]
        return rows

    (alone,) = embed("hello")
    assert alone == embed("one", "hello", "two and three")[1]
    assert alone == embed("hello", "hello")[1]


def test_inputs_may_be_made_of_parts(client: httpx.Client) -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "world"}]
    inputs = [{"content": parts}, {"content": parts[:1]}]
    found = post(client, "/v2/embed", inputs=inputs)["embeddings"]["float"]
    np.testing.assert_allclose(found, [row_of("hello\nworld", DIM), row_of("hello", DIM)], rtol=1e-6)


def test_rows_are_cut_and_texts_too(client: httpx.Client) -> None:
    rows = post(client, "/v2/embed", texts=["hello"], output_dimension=16)["embeddings"]["float"]
    assert np.shape(rows) == (1, 16)
    text = "one two three four five"
    for truncate, kept in (("END", "one two three"), ("START", "three four five")):
        (row,) = post(client, "/v2/embed", texts=[text], truncate=truncate, max_tokens=5)["embeddings"][
            "float"
        ]
        np.testing.assert_allclose(row, row_of(kept, DIM), rtol=1e-6)
    refusal = post(client, "/v2/embed", status=400, texts=["hello " * 300], truncate="NONE")
    assert "maximum context length is 256 tokens" in refusal["message"]


@pytest.mark.parametrize("path", ["/v1/embed", "/v2/embed"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": "hello"}, "texts"),
        ({"texts": ["a", 1]}, "texts[1]"),
        ({"texts": [], "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "texts"),
        ({"inputs": [{"content": []}]}, "inputs[0]"),
        (
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "inputs[0].content[0].image_url.url",
        ),
        ({"texts": ["a"], "images": ["data:image/png;base64,AAAA"]}, "images"),
        ({"texts": ["a"], "input_type": "image"}, "input_type"),
        ({"texts": ["a"], "input_type": "essay"}, "input_type"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "truncate"),
        ({"texts": ["a"], "embedding_types": ["float", "int4"]}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": []}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": [{}]}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": ["binary"], "output_dimension": 12}, "dimensions"),
        ({"texts": ["a"] * 3_000}, "texts"),
    ],
)
def test_what_is_wrong_is_named(client: httpx.Client, path: str, body: dict[str, Any], field: str) -> None:
    document = post(client, path, status=400, **body)
    assert document["error"]["param"] == field
    assert isinstance(document["message"], str)


@pytest.mark.parametrize(
    "path", ["/v1/rerank", "/v2/rerank", "/v1/v2/rerank", "/v1/v1/rerank", "/rerank", "/v2//rerank/"]
)
def test_a_rerank_answers_wherever_the_client_looks(client: httpx.Client, path: str) -> None:
    documents = ["world", {"text": "hello"}]
    answer = post(client, path, model=MODEL, query="hello", documents=documents, top_n=1)
    assert set(answer) == {"id", "object", "created", "model", "results", "usage", "meta"}
    assert answer["object"] == "rerank"
    (result,) = answer["results"]
    assert result == {"index": 1, "relevance_score": pytest.approx(1, abs=1e-6)}
    assert answer["meta"]["api_version"] == {"version": "2"}
    assert answer["meta"]["billed_units"] == {"search_units": 1, "input_tokens": 9}


def test_rank_fields_say_what_of_a_document_is_read(client: httpx.Client) -> None:
    documents = [
        {"title": "world", "text": "unread", "year": 1999},
        {"text": "unread", "title": "hello", "body": "world"},
        "hello",
    ]

    def scores(**body: Any) -> dict[int, float]:
        answer = post(client, "/v1/rerank", query="hello", **body)
        return {result["index"]: result["relevance_score"] for result in answer["results"]}

    plain = scores(documents=["world", "hello\nworld", "hello"])
    assert scores(documents=documents, rank_fields=["title", "body"]) == plain
    assert scores(documents=documents, rank_fields=["body", "title"])[0] == plain[0]
    assert scores(documents=documents, rank_fields=["body", "title"])[1] != plain[1]
    assert scores(documents=documents, rank_fields=[])[0] == scores(documents=["unread"])[0]
    refusal = post(client, "/v1/rerank", status=400, query="q", documents=documents, rank_fields=["year"])
    assert refusal["error"]["param"] == "documents[0]"
    refusal = post(client, "/v1/rerank", status=400, query="q", documents=documents, rank_fields="title")
    assert refusal["error"]["param"] == "rank_fields"


def test_documents_come_back_as_they_were_sent(client: httpx.Client) -> None:
    documents = ["hello", {"text": "world", "page": 3}, {"title": "cats", "page": None}]
    body: dict[str, Any] = {
        "query": "q",
        "documents": documents,
        "rank_fields": ["text", "title"],
        "return_documents": True,
    }
    results = post(client, "/v1/rerank", **body)["results"]
    found = {result["index"]: result["document"] for result in results}
    assert found == {
        0: {"text": "hello"},
        1: documents[1],
        2: {"title": "cats", "page": None, "text": "cats"},
    }


def test_long_documents_are_read_as_far_as_is_asked_for(client: httpx.Client) -> None:
    def rerank(**body: Any) -> tuple[float, int]:
        answer = post(client, "/v2/rerank", query="hello", **body)
        return answer["results"][0]["relevance_score"], answer["usage"]["total_tokens"]

    cut = rerank(documents=["one two three four"], max_tokens_per_doc=2)
    assert cut == rerank(documents=["one two"])
    whole = rerank(documents=["one two three four"])
    assert whole != cut
    for unset in (None, 0, 4_096):
        assert rerank(documents=["one two three four"], max_tokens_per_doc=unset) == whole


def test_texts_are_tokenized_and_back(client: httpx.Client) -> None:
    found = post(client, "/v1/tokenize", text="hello world", model=MODEL)
    assert found == {
        "tokens": [7592, 2088],
        "token_strings": ["hello", " world"],
        "meta": {"api_version": {"version": "1"}},
    }
    back = post(client, "/v1/detokenize", tokens=found["tokens"], model=MODEL)
    assert back == {"text": "hello world", "meta": {"api_version": {"version": "1"}}}


def test_the_strings_of_tokens_are_the_text(client: httpx.Client) -> None:
    """Dify splits a long text at tokens, and embeds what it joins again."""
    for text in ("  Ein  längerer\tSatz,\n日本語 and 🙂 ①½ CAPITALS  ", "hello"):
        found = post(client, "/v1/tokenize", text=text)
        assert "".join(found["token_strings"]) == text
        assert len(found["token_strings"]) == len(found["tokens"])


def test_models_have_what_its_clients_read(client: httpx.Client) -> None:
    listed = client.get("/v1/models", params={"page_size": 1, "endpoint": "embed"}).json()
    (model,) = listed["models"]
    assert (model["name"], model["endpoints"]) == (MODEL, ["embed", "rerank"])
    one = client.get(f"/v1/models/{MODEL}").json()
    assert (one["name"], one["context_length"]) == (MODEL, 256)
