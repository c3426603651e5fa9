"""vLLM's clients: /score, /pooling, /classify, /tokenize and /detokenize."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import row_of, token_ids
from support.http_server import DIM, MODEL, HttpServer, post
from vecmill.engines.fake import hash_token_rows
from vecmill.models import Task
from vecmill.vectors import softmax


def cosine(one: str, other: str) -> float:
    return float(row_of(one, DIM) @ row_of(other, DIM))


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2"), ("queries", "items")],
)
def test_scores_come_in_input_order(client: httpx.Client, path: str, first: str, second: str) -> None:
    sides: dict[str, Any] = {first: "hello", second: ["world", "hello"]}
    answer = post(client, path, model=MODEL, **sides)
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    assert answer["object"] == "list"
    assert [set(entry) for entry in answer["data"]] == [{"index", "object", "score"}] * 2
    assert [entry["index"] for entry in answer["data"]] == [0, 1]
    assert {entry["object"] for entry in answer["data"]} == {"score"}
    scores = [entry["score"] for entry in answer["data"]]
    assert scores == pytest.approx([cosine("hello", "world"), 1], abs=1e-6)
    assert answer["usage"] == {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0}


def test_both_sides_are_read_as_far_as_is_asked_for(client: httpx.Client) -> None:
    def scores(path: str, query: str, document: str, **limits: int) -> Any:
        body: dict[str, Any] = {"query": query, "text_1": query, "documents": [document], **limits}
        return {**post(client, path, **body), "id": None, "created": None}

    for path in ("/score", "/rerank"):
        cut = scores(path, "a dog is", "one two three", max_tokens_per_query=2, max_tokens_per_doc=1)
        assert [each["tokens"] for each in cut.pop("truncated")] == [2, 1]
        assert cut == scores(path, "a dog", "one")
        whole = scores(path, "a dog is", "one two three", max_tokens_per_query=0, max_tokens_per_doc=0)
        assert whole == scores(path, "a dog is", "one two three")


def test_many_are_scored_with_many(client: httpx.Client) -> None:
    answer = post(client, "/score", text_1=["hello", "world"], text_2=["world", "world"])
    assert [entry["score"] for entry in answer["data"]] == pytest.approx(
        [cosine("hello", "world"), 1], abs=1e-6
    )
    (one,) = post(client, "/score", text_1="hello", text_2="hello")["data"]
    assert one["score"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]},
        {"text_1": ["a", "b"], "text_2": "c"},
        {"text_1": "a"},
        {"text_2": "a"},
        {"text_1": [], "text_2": "a"},
        {"text_1": [1], "text_2": "a"},
    ],
)
def test_sides_that_do_not_match_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    assert isinstance(post(client, "/score", status=400, **body)["error"]["message"], str)


def test_a_cross_encoder_scores_with_or_without_its_activation(every_task: HttpServer) -> None:
    def score(**settings: Any) -> float:
        answer = post(every_task.client, "/score", text_1="hello", text_2="world", **settings)
        return float(answer["data"][0]["score"])

    raw = score(use_activation=False)
    assert score() == score(use_activation=None) == pytest.approx(1 / (1 + np.exp(-raw)), abs=1e-6)
    assert score(raw_scores=True) == raw


@pytest.mark.parametrize("path", ["/pooling", "/v1/pooling"])
def test_pooling_gives_what_the_model_makes_of_texts(every_task: HttpServer, path: str) -> None:
    client = every_task.client
    answer = post(client, path, input=["hello"], model="model/embed", encoding_format="float")
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    (entry,) = answer["data"]
    assert (entry["index"], entry["object"]) == (0, "pooling")
    np.testing.assert_allclose(entry["data"], row_of("hello", 8), rtol=1e-6)
    (tokens,) = post(client, path, input="hello", task="token_embed")["data"]
    np.testing.assert_allclose(tokens["data"], hash_token_rows(token_ids("hello"), 4), rtol=1e-6)
    (labels,) = post(client, path, input="hello", task="classify")["data"]
    np.testing.assert_allclose(labels["data"], softmax(row_of("hello", 3)[None])[0], atol=1e-6)
    (scores,) = post(client, path, input="hello", task="token_classify")["data"]
    np.testing.assert_allclose(scores["data"], softmax(hash_token_rows(token_ids("hello"), 3)), atol=1e-6)
    (logits,) = post(client, path, input="hello", task="token_classify", use_activation=False)["data"]
    np.testing.assert_allclose(logits["data"], hash_token_rows(token_ids("hello"), 3), rtol=1e-6)


def test_pooling_gives_the_tokens_of_an_embedder_with_length_1_unless_asked_not_to(
    every_task: HttpServer,
) -> None:
    client = every_task.client
    body: dict[str, Any] = {"input": ["hello", "hello world"], "model": "model/embed", "task": "token_embed"}
    states = client.post("/embed_all", json={"inputs": body["input"], "model": "model/embed"}).json()
    raw = post(client, "/pooling", **body, use_activation=False)["data"]
    for settings in ({}, {"use_activation": True}):
        scaled = post(client, "/pooling", **body, **settings)["data"]
        for one, plain, given in zip(scaled, raw, states, strict=True):
            np.testing.assert_allclose(plain["data"], given, rtol=1e-6)
            lengths = np.linalg.norm(given, axis=1, keepdims=True)
            np.testing.assert_allclose(one["data"], given / lengths, atol=1e-6)


def test_pooling_refuses_other_lengths_of_a_multi_vector_model(every_task: HttpServer) -> None:
    body: dict[str, Any] = {"input": "hello", "model": "model/multi_vector", "task": "token_embed"}
    usual = post(every_task.client, "/pooling", **body)["data"]
    assert post(every_task.client, "/pooling", **body, use_activation=True)["data"] == usual
    error = post(every_task.client, "/pooling", status=400, **body, use_activation=False)["error"]
    assert error["param"] == "use_activation"
    assert "`use_activation` is false" in error["message"]


@pytest.mark.parametrize(
    ("model", "task"),
    [
        (Task.EMBED, "embed"),
        (Task.MULTI_VECTOR, "token_embed"),
        (Task.CLASSIFY, "classify"),
        (Task.RERANK, "classify"),
        (Task.CLASSIFY_TOKENS, "token_classify"),
    ],
)
def test_pooling_without_a_task_does_what_the_model_is_for(
    every_task: HttpServer, model: Task, task: str
) -> None:
    body: dict[str, Any] = {"input": ["hello", "hello world"], "model": f"model/{model}"}
    found = post(every_task.client, "/pooling", **body)
    for named in (task, None):
        assert post(every_task.client, "/pooling", **body, task=named)["data"] == found["data"]


def test_pooling_of_a_sparse_model_is_refused(every_task: HttpServer) -> None:
    body: dict[str, Any] = {"input": "hello", "model": f"model/{Task.SPARSE}"}
    error = post(every_task.client, "/pooling", status=400, **body)["error"]
    assert error["code"] == "model_not_supported"


@pytest.mark.parametrize("task", ["embed", "token_embed", "classify", "token_classify"])
def test_pooling_writes_base64_of_the_same_numbers(every_task: HttpServer, task: str) -> None:
    (plain,) = post(every_task.client, "/pooling", input="hello", task=task)["data"]
    (packed,) = post(every_task.client, "/pooling", input="hello", task=task, encoding_format="base64")[
        "data"
    ]
    found = np.frombuffer(base64.b64decode(packed["data"], validate=True), "<f4")
    np.testing.assert_array_equal(found, np.ravel(plain["data"]).astype(np.float32))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"task": "plugin"}, "task"),
        ({"task": "classify", "output_dtype": "int8"}, "task"),
        ({"input": []}, "input"),
    ],
)
def test_pooling_that_cannot_be_is_a_400(every_task: HttpServer, body: dict[str, Any], param: str) -> None:
    assert (
        post(every_task.client, "/pooling", status=400, **{"input": "a", **body})["error"]["param"] == param
    )


def test_a_prompt_is_tokenized_and_back(client: httpx.Client) -> None:
    found = post(client, "/tokenize", model=MODEL, prompt="hello world", return_token_strs=True)
    assert found == {
        "count": 4,
        "max_model_len": 256,
        "tokens": [101, 7592, 2088, 102],
        "token_strs": ["[CLS]", "hello", "world", "[SEP]"],
    }
    plain = post(client, "/v1/tokenize", prompt="hello", add_special_tokens=False)
    assert plain == {"count": 1, "max_model_len": 256, "tokens": [7592], "token_strs": None}
    whole = "[CLS] hello world [SEP]"
    assert post(client, "/detokenize", tokens=found["tokens"]) == {"prompt": whole, "content": whole}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [30_522]}, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, "tokens[0]"),
    ],
)
def test_what_is_no_prompt_and_no_token_is_a_400(
    client: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    assert post(client, path, status=400, **body)["error"]["param"] == param
