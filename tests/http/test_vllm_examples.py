"""The requests of vLLM's examples (`examples/pooling`), and what these examples read of the answers."""

import base64
import json
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from support.described_models import LABELS, row_of, token_ids
from support.http_server import DIM, HttpServer, post
from vecmill.engines.fake import hash_token_rows
from vecmill.models import Task
from vecmill.values.aliases import FloatArray

TEXTS = ["The best thing about vLLM is that it supports many different models"] * 2
TYPES: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
PROMPTS = ["Hello, my name is", "The capital of France is"]
QUERY = "What is the capital of France?"
DOCUMENTS = ["The capital of Brazil is Brasilia.", "The capital of France is Paris."]


def unpack(text: str, embed_dtype: str, endianness: str) -> FloatArray:
    """The numbers of an embedding, as the example's `binary2tensor` reads them."""
    return read_numbers(base64.b64decode(text, validate=True), embed_dtype, endianness)


def read_numbers(data: bytes, embed_dtype: str, endianness: str) -> FloatArray:
    """The numbers in some bytes, as the example's `binary2tensor` reads them."""
    kind = np.dtype(TYPES[embed_dtype])
    order = ">" if endianness == "big" else "<"
    bits = np.frombuffer(data, f"{order}u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind).astype(np.float32)


@pytest.mark.parametrize("endianness", ["native", "big", "little"])
@pytest.mark.parametrize("embed_dtype", TYPES)
def test_embedding_requests_base64(client: httpx.Client, embed_dtype: str, endianness: str) -> None:
    body: dict[str, Any] = {"embed_dtype": embed_dtype, "endianness": endianness, "encoding_format": "base64"}
    data = post(client, "/v1/embeddings", input=TEXTS, **body)["data"]
    expected = row_of(TEXTS[0], DIM).astype(TYPES[embed_dtype]).astype(np.float32)
    for entry in data:
        np.testing.assert_array_equal(unpack(entry["embedding"], embed_dtype, endianness), expected)


@pytest.mark.parametrize("endianness", ["native", "big", "little"])
@pytest.mark.parametrize("embed_dtype", TYPES)
def test_embedding_requests_bytes(client: httpx.Client, embed_dtype: str, endianness: str) -> None:
    body: dict[str, Any] = {"embed_dtype": embed_dtype, "endianness": endianness}
    expected = row_of(TEXTS[0], DIM).astype(TYPES[embed_dtype]).astype(np.float32)
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "bytes", **body})
    for item in json.loads(answer.headers["metadata"])["data"]:
        data = answer.content[item["start"] : item["end"]]
        found = read_numbers(data, item["embed_dtype"], item["endianness"]).reshape(item["shape"])
        np.testing.assert_array_equal(found, expected)
    only = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "bytes_only", **body})
    assert only.content == answer.content


def test_the_float_format_is_for_base64_of_floats_alone(client: httpx.Client) -> None:
    narrow: dict[str, Any] = {"embed_dtype": "fp8_e4m3", "endianness": "big"}
    int8 = {"output_dtype": "int8"}
    others: list[dict[str, Any]] = [{}, int8, {**int8, "encoding_format": "base64"}]
    for plain in others:
        ours = post(client, "/v1/embeddings", input="hello", **plain)["data"]
        assert post(client, "/v1/embeddings", input="hello", **plain, **narrow)["data"] == ours
    for name, value in (("embed_dtype", "float64"), ("endianness", "middle")):
        error = post(client, "/v1/embeddings", status=400, input="a", **{name: value})["error"]
        assert error["param"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("add_special_tokens", False),
        ("add_special_tokens", "false"),
        ("late_chunking_params", {"chunk_size": 16}),
        ("padding", "max_length"),
        ("chat_template", "{{ messages }}"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling", "/classify"])
def test_what_would_change_numbers_is_refused_by_its_name(
    every_task: HttpServer, path: str, name: str, value: object
) -> None:
    error = post(every_task.client, path, status=400, input="a", **{name: value})["error"]
    assert error["param"] == name
    assert f"`{name}`" in error["message"]


def test_values_that_change_nothing_are_taken(client: httpx.Client) -> None:
    usual: dict[str, Any] = {"add_special_tokens": "True", "padding": "do_not_pad", "chat_template": None}
    plain = post(client, "/v1/embeddings", input="hello")["data"]
    assert post(client, "/v1/embeddings", input="hello", **usual)["data"] == plain


def test_pooling_online(every_task: HttpServer) -> None:
    client = every_task.client
    model = client.get("/v1/models").json()["data"][0]["id"]
    (entry,) = post(client, "/pooling", model=model, input="vLLM is great!")["data"]
    np.testing.assert_allclose(entry["data"], row_of("vLLM is great!", 8), rtol=1e-6)
    messages = [{"role": "user", "content": [{"type": "text", "text": "vLLM is great!"}]}]
    error = post(client, "/pooling", status=400, model=model, messages=messages)["error"]
    assert (error["param"], "as `input`" in error["message"]) == ("messages", True)


def test_ner_online(every_task: HttpServer) -> None:
    text = "Barack Obama visited Microsoft headquarters in Seattle on January 2025."
    model = f"model/{Task.CLASSIFY_TOKENS}"
    (output,) = post(every_task.client, "/pooling", model=model, input=text)["data"]
    predictions = np.array(output["data"]).argmax(axis=-1)
    assert len(predictions) == len(token_ids(text))
    expected = hash_token_rows(token_ids(text), len(LABELS)).argmax(axis=-1)
    assert [LABELS[label] for label in predictions] == [LABELS[label] for label in expected]


def test_multi_vector_retrieval_online(every_task: HttpServer) -> None:
    model = f"model/{Task.MULTI_VECTOR}"
    for prompt, output in zip(
        PROMPTS, post(every_task.client, "/pooling", model=model, input=PROMPTS)["data"], strict=True
    ):
        assert np.array(output["data"]).shape == (len(token_ids(prompt)), 4)
    scores = post(every_task.client, "/score", model=model, queries=QUERY, documents=DOCUMENTS)["data"]
    assert [entry["index"] for entry in scores] == [0, 1]


@pytest.mark.parametrize("model", [Task.CLASSIFY, Task.RERANK])
def test_sequence_rewards_and_classification_online(every_task: HttpServer, model: Task) -> None:
    answer = post(every_task.client, "/classify", model=f"model/{model}", input=PROMPTS)
    pooled = post(every_task.client, "/pooling", model=f"model/{model}", input=PROMPTS)
    assert [entry["probs"] for entry in answer["data"]] == [entry["data"] for entry in pooled["data"]]


def test_score_and_rerank_online(every_task: HttpServer) -> None:
    client, model = every_task.client, f"model/{Task.RERANK}"

    def scores(queries: object, documents: object) -> list[float]:
        data = post(client, "/score", model=model, queries=queries, documents=documents)["data"]
        return [entry["score"] for entry in data]

    both = scores(QUERY, DOCUMENTS)
    assert scores([QUERY, QUERY], DOCUMENTS) == both
    assert scores(QUERY, DOCUMENTS[0]) == both[:1]
    results = post(client, "/rerank", model=model, query=QUERY, documents=DOCUMENTS)["results"]
    assert {entry["index"]: entry["relevance_score"] for entry in results} == dict(enumerate(both))
