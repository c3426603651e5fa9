"""POST /embeddings answers as OpenAI's clients expect, and refuses what it cannot mean."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.http_server import DIM, MODEL, HttpServer, serve_in_thread, url
from vecmill.engines.fake import hash_row
from vecmill_server.base.settings import ServerSettings, TokenIds

PATHS = ["/v1/embeddings", "/embeddings", "/v1/embeddings/", "//v1//embeddings", "/embeddings//"]

# What the tokenizer makes of it: [CLS] hello [SEP].
HELLO = hash_row(np.array([101, 7592, 102]), DIM)


def embed(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def refusal(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/embeddings", json=body)
    document: dict[str, Any] = answer.json()
    assert answer.status_code == 400, document
    assert document["message"] == document["detail"] == document["error"]["message"]
    assert document["error"]["type"] == "invalid_request_error"
    error: dict[str, Any] = document["error"]
    return error


@pytest.mark.parametrize("path", PATHS)
def test_every_spelling_of_the_path_answers(client: httpx.Client, path: str) -> None:
    answer = client.post(url(client, path), json={"input": "hello"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    np.testing.assert_allclose(answer.json()["data"][0]["embedding"], HELLO, rtol=1e-6)


def test_the_answer_has_every_field_that_clients_read(client: httpx.Client) -> None:
    document = embed(client, input=["hello", "hello world"], model=MODEL, user="ignored", unknown={"a": 1})
    assert document["object"] == "list"
    assert document["id"].startswith("embd-")
    assert isinstance(document["created"], int)
    assert document["model"] == MODEL
    assert document["usage"] == {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}
    assert [entry["index"] for entry in document["data"]] == [0, 1]
    assert {entry["object"] for entry in document["data"]} == {"embedding"}


def test_base64_holds_the_same_numbers_as_floats(client: httpx.Client) -> None:
    texts = [f"text number {number}" for number in range(100)]  # enough to be encoded off the loop
    floats = embed(client, input=texts, encoding_format="float")["data"]
    packed = embed(client, input=texts, encoding_format="base64")["data"]
    for plain, entry in zip(floats, packed, strict=True):
        row = np.frombuffer(base64.b64decode(entry["embedding"], validate=True), "<f4")
        np.testing.assert_array_equal(row, np.array(plain["embedding"], np.float32))


def test_null_is_the_same_as_absent(client: httpx.Client) -> None:
    absent = embed(client, input="hello")["data"]
    null = embed(
        client,
        input="hello",
        model=None,
        encoding_format=None,
        dimensions=None,
        prompt_name=None,
        truncate=None,
    )
    assert null["data"] == absent


def test_dimensions_cut_and_zero_does_not(client: httpx.Client) -> None:
    cut = embed(client, input="hello", dimensions=8)["data"][0]["embedding"]
    np.testing.assert_allclose(cut, HELLO[:8] / np.linalg.norm(HELLO[:8]), rtol=1e-5)
    for written in (8.0, "8"):
        assert embed(client, input="hello", dimensions=written)["data"][0]["embedding"] == cut
    assert len(embed(client, input="hello", dimensions=0)["data"][0]["embedding"]) == DIM


def test_long_texts_are_cut_unless_the_client_minds(client: httpx.Client) -> None:
    assert embed(client, input="hello " * 300)["usage"]["total_tokens"] == 256
    assert embed(client, input="hello " * 300, truncate="TRUE")["usage"]["total_tokens"] == 256
    error = refusal(client, input="hello " * 300, truncate=False)
    assert error["code"] == "context_length_exceeded"
    assert "This model's maximum context length is 256 tokens, however you requested 302" in error["message"]
    assert refusal(client, input="hello " * 300, truncate="false")["code"] == "context_length_exceeded"


@pytest.mark.promise("finite-embeddings", "malformed-input")
@pytest.mark.parametrize("text", ["", " ", "a", "日本語", "👩‍👩‍👧", "\x00", "\u202eabc"])
def test_any_text_has_a_row(client: httpx.Client, text: str) -> None:
    assert len(embed(client, input=[text])["data"]) == 1


@pytest.mark.parametrize(
    "model", [MODEL, MODEL.upper(), f"sentence-transformers/{MODEL}", "default/not-specified", None]
)
def test_the_model_answers_to_its_names(client: httpx.Client, model: str | None) -> None:
    assert embed(client, input="hello", model=model)["model"] == MODEL


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "nonsense"]
)
def test_the_content_type_does_not_matter(client: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    assert client.post("/embeddings", content=b'{"input": "hello"}', headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 1}, "input"),
        ({"input": True}, "input"),
        ({"input": {"texts": "a"}}, "input"),
        ({"input": ["a", 1]}, "input[1]"),
        ({"input": ["a", "b", "c", None]}, "input[3]"),
        ({"input": ["a", {"b": 1}]}, "input[1]"),
        ({"input": [1.5]}, "input[0]"),
        ({"input": [True]}, "input[0]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [1, -1]}, "input[1]"),
        ({"input": "a", "encoding_format": "binary"}, "encoding_format"),
        ({"input": "a", "encoding_format": 7}, "encoding_format"),
        ({"input": "a", "encoding_format": ["float"]}, "encoding_format"),
        ({"input": "a", "dimensions": -1}, "dimensions"),
        ({"input": "a", "dimensions": 1.5}, "dimensions"),
        ({"input": "a", "dimensions": "8.5"}, "dimensions"),
        ({"input": "a", "dimensions": "-8"}, "dimensions"),
        ({"input": "a", "dimensions": "eight"}, "dimensions"),
        ({"input": "a", "dimensions": True}, "dimensions"),
        ({"input": "a", "dimensions": 385}, "dimensions"),
        ({"input": "a", "dimensions": 10**30}, "dimensions"),
        ({"input": "a", "prompt_name": "nobody"}, "prompt_name"),
        ({"input": "a", "prompt_name": 1}, "prompt_name"),
        ({"input": "a", "truncate": "maybe"}, "truncate"),
        ({"input": "a", "truncate": 1}, "truncate"),
        ({"input": "a", "model": 1}, "model"),
        ({"input": ["a"] * 3_000}, "input"),
    ],
)
def test_what_is_wrong_is_named(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    assert refusal(client, **body)["param"] == field


def test_an_unknown_model_is_told_which_there_are(client: httpx.Client) -> None:
    answer = client.post("/embeddings", json={"input": "a", "model": "other/model"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert MODEL in answer.json()["error"]["message"]


def test_an_alias_is_a_name() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, alias=("text-embedding-3-small",))) as server:
        document = embed(server.client, input="hello", model="text-embedding-3-small")
        assert document["model"] == MODEL


@pytest.mark.parametrize("ids", [[101, 102], [[101, 102]], ["text", [101, 102]]])
def test_token_ids_are_refused_with_the_way_out(client: httpx.Client, ids: list[Any]) -> None:
    assert "check_embedding_ctx_length=False" in refusal(client, input=ids)["message"]


def test_native_token_ids_are_the_models_own() -> None:
    settings = ServerSettings(lame_duck_s=0, token_ids=TokenIds.NATIVE)
    with serve_in_thread(settings) as server:
        one = embed(server.client, input=[101, 7592, 102])["data"]
        assert len(one) == 1
        mixed = embed(server.client, input=["hello", [101, 7592, 102], [5]])["data"]
        assert one[0]["embedding"] == mixed[0]["embedding"] == mixed[1]["embedding"]
        assert mixed[2]["embedding"] != one[0]["embedding"]
        for wrong in (
            [-1],
            [30_522],
            [2**31],
            [2**64],
            [2**70],
            [1.0],
            [1, "a"],
            [[1, 2], [30_522]],
            [[1], [1, "a"]],
        ):
            assert refusal(server.client, input=wrong)["param"].startswith("input")


def test_times_and_ids_are_in_the_headers(client: httpx.Client) -> None:
    answer = client.post("/embeddings", json={"input": "hello"}, headers={"x-request-id": "my-id_1.2"})
    assert answer.headers["x-request-id"] == "my-id_1.2"
    assert float(answer.headers["x-compute-time"]) >= 0
    parts = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert set(parts) == {"tokenize", "queue", "inference", "total"}
    assert all(float(milliseconds) >= 0 for milliseconds in parts.values())


@pytest.mark.promise("private-logs")
@pytest.mark.parametrize("sent", ["with space", "a" * 129, "", "é", "a;b"])
def test_other_request_ids_are_replaced(client: httpx.Client, sent: str) -> None:
    headers = {b"x-request-id": sent.encode()}
    answer = client.post("/embeddings", json={"input": "hello"}, headers=headers)
    assert answer.headers["x-request-id"] not in ("", sent)
    assert client.get("/livez").headers["x-request-id"]


def test_an_offered_upgrade_is_declined_and_the_request_answered(server: HttpServer) -> None:
    """Some HTTP libraries offer h2c with their first request; it is answered as if they did not."""
    body = b'{"input": "hello"}'
    answer = server.exchange(
        b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings, close\r\n"
        b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0.12, -0.5], "`input[0]` is a fraction: send texts, or token ids, which are whole numbers."),
        ({"txt": "a"}, '`input` is an object without "text": send the text itself.'),
        (["a", {"txt": "a"}], '`input[1]` is an object without "text": send the text itself.'),
    ],
)
def test_what_is_no_text_is_called_what_it_is(client: httpx.Client, given: Any, said: str) -> None:
    answer = client.post("/v1/embeddings", json={"input": given})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, said)
