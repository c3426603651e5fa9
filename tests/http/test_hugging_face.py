"""Bodies without a route of their own: Hugging Face's and SageMaker's endpoints, and Vertex AI."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, row_of, token_ids
from support.http_server import DIM, HttpServer, post, serve_in_thread
from vecmill.config import InputConfig, MillConfig
from vecmill.engines.fake import hash_token_rows
from vecmill.models import Task

PATHS = ["/", "/invocations"]


@pytest.mark.parametrize("path", PATHS)
def test_a_model_that_embeds_gives_rows(client: httpx.Client, path: str) -> None:
    expected = [row_of("hello", DIM), row_of("world", DIM)]
    options: dict[str, Any] = {"parameters": {"truncate": True}, "options": {"wait_for_model": True}}
    found = np.array(post(client, path, inputs=["hello", "world"], **options))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(post(client, path, inputs="hello"), expected[:1], rtol=1e-6)
    # What Haystack's embedder sends unless it is told otherwise.
    plain = post(client, path, inputs="hello", normalize=False, truncate=True)
    np.testing.assert_allclose(plain, expected[:1], rtol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_the_keys_say_what_is_asked(client: httpx.Client, path: str) -> None:
    sentences = {"source_sentence": "hello", "sentences": ["hello"]}
    assert post(client, path, inputs=sentences) == pytest.approx([1], abs=1e-6)
    ranked = [
        {"index": 1, "score": 1.0},
        {"index": 0, "score": float(row_of("hello", DIM) @ row_of("a", DIM))},
    ]
    expected = [{**entry, "score": pytest.approx(entry["score"], abs=1e-6)} for entry in ranked]
    assert post(client, path, query="hello", texts=["a", "hello"]) == expected
    assert post(client, path, inputs={"query": "hello", "texts": ["a", "hello"]}) == expected


def test_parameters_count_where_the_body_itself_says_nothing(client: httpx.Client) -> None:
    def tokens(**body: Any) -> str:
        answer = client.post("/", json={"inputs": "one two three four five", **body})
        assert answer.status_code == 200, answer.text
        return answer.headers["x-compute-tokens"]

    assert tokens(parameters={"truncate_prompt_tokens": 4}) == "4"
    assert tokens(parameters={"truncate_prompt_tokens": 4}, truncate_prompt_tokens=None) == "4"
    assert tokens(parameters={"truncate_prompt_tokens": 4}, truncate_prompt_tokens=5) == "5"
    assert tokens(parameters=None) == tokens(parameters={}) == "7"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("task", Task)
def test_each_model_does_what_it_is_for(every_task: HttpServer, path: str, task: Task) -> None:
    found = post(every_task.client, path, model=f"model/{task}", inputs="hello world of ours")
    forms: dict[Task, object] = {
        Task.EMBED: (1, 8),
        Task.RERANK: {"label", "score"},
        Task.CLASSIFY: {"label", "score"},
        Task.CLASSIFY_TOKENS: {"entity_group", "score", "word", "start", "end"},
        Task.SPARSE: {"index", "value"},
        Task.MULTI_VECTOR: (1, 6, 4),
    }
    assert form(found) == forms[task]


def form(answer: list[Any]) -> object:
    """The shape of a list of numbers, or the keys of what is in another."""
    first = answer[0][0] if isinstance(answer[0], list) else answer[0]
    return set(first) if isinstance(first, dict) else np.shape(answer)


def test_errors_are_a_sentence(client: httpx.Client) -> None:
    refusal = post(client, "/", status=422)
    assert refusal == {
        "error": "`inputs` is required: a string, or a list of strings.",
        "error_type": "Validation",
    }
    assert post(client, "/", status=404, inputs="a", model="nobody")["error_type"] == "Validation"


def test_vertex_answers_each_instance(client: httpx.Client) -> None:
    instances = [
        {"inputs": "hello"},
        {"inputs": ["hello", "world"], "truncate": True},
        {"query": "hello", "texts": ["hello"]},
    ]
    (first, second, third) = post(client, "/vertex", instances=instances)["predictions"]
    np.testing.assert_allclose(first, [row_of("hello", DIM)], rtol=1e-6)
    np.testing.assert_allclose(second, [row_of("hello", DIM), row_of("world", DIM)], rtol=1e-6)
    assert third == [{"index": 0, "score": pytest.approx(1, abs=1e-6)}]


def test_vertex_s_parameters_are_for_every_instance(client: httpx.Client) -> None:
    long = {"inputs": "hello " * 300}
    post(client, "/vertex", instances=[long])
    refusal = post(
        client, "/vertex", status=422, instances=[{"inputs": "a"}, long], parameters={"truncate": False}
    )
    assert refusal["error_type"] == "Validation"
    post(client, "/vertex", instances=[{**long, "truncate": True}], parameters={"truncate": False})


def test_vertex_asks_the_model_that_is_named(every_task: HttpServer) -> None:
    found = post(every_task.client, "/vertex", instances=[{"inputs": "hello"}], model="model/multi_vector")
    np.testing.assert_allclose(found["predictions"], [[hash_token_rows(token_ids("hello"), 4)]], rtol=1e-6)
    named = [{"inputs": "hello", "model": "model/multi_vector"}, {"inputs": "hello"}]
    inside = post(every_task.client, "/vertex", instances=named)
    assert inside["predictions"] == found["predictions"] * 2


def test_vertex_asks_one_model(every_task: HttpServer) -> None:
    """Embeddings of another model than the one that an instance names would be silently wrong."""
    named = [{"inputs": "hello", "model": "model/multi_vector"}]
    refusal = post(every_task.client, "/vertex", status=422, instances=named, model="model/embed")
    assert refusal["error"].startswith("`instances` name several models")


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        (None, "`instances` is required"),
        ({}, "`instances` must be a list of objects, not an object."),
        (["hello"], "`instances[0]` must be an object, not a string."),
        ([{"inputs": "a"}, None], "`instances[1]` must be an object, not null."),
        ([{}], "`instances[0]`: `inputs` is required"),
        ([{"inputs": "a"}, {"inputs": ["a", 3]}], "`instances[1]`: `inputs[1]` must be a string"),
        ([{"inputs": "a"}, {"inputs": []}], "`instances[1]`: `inputs` is an empty list"),
        ([{"inputs": "a"}, {"inputs": "a", "prompt_name": "x"}], "`instances[1]`: The model has no prompt"),
        (
            [{"inputs": "a"}, {"inputs": "a " * 300, "truncate": False}],
            "`instances[1].inputs` must have less than 256 tokens. Given: 302",
        ),
    ],
)
def test_what_is_no_instance_is_refused(client: httpx.Client, instances: object, words: str) -> None:
    refusal = client.post("/vertex", json={"instances": instances})
    assert refusal.status_code == (400 if "is an empty list" in words else 422)
    assert refusal.json()["error"].startswith(words)


@pytest.fixture
def small() -> Iterator[HttpServer]:
    with serve_in_thread(config=MillConfig(inputs=InputConfig(max_inputs=3))) as server:
        yield server


def test_instances_together_have_the_limits_of_one_request(small: HttpServer) -> None:
    post(small.client, "/vertex", instances=[{"inputs": "a"}, {"inputs": ["b", "c"]}])
    refusal = post(
        small.client, "/vertex", status=422, instances=[{"inputs": "a"}, {"inputs": ["b", "c", "d"]}]
    )
    assert refusal["error"].startswith("`instances` has 4 inputs in all; at most 3 are accepted")
    refusal = post(small.client, "/vertex", status=422, instances=[{"inputs": "a"}] * 4)
    assert refusal["error"].startswith("`instances` has 4 inputs in all")


def test_a_model_that_cannot_is_named(every_task: HttpServer) -> None:
    sentences = {"source_sentence": "a", "sentences": ["b"]}
    refusal = post(every_task.client, "/", status=424, inputs=sentences, model=f"model/{Task.RERANK}")
    assert describe_tasks()[Task.RERANK].name in refusal["error"]


def test_sagemaker_takes_openai_s_and_vllm_s_bodies(every_task: HttpServer) -> None:
    client = every_task.client
    embedded = post(client, "/invocations", model="model/embed", input=["hello"], encoding_format="float")
    assert embedded["object"] == "list"
    assert len(embedded["data"][0]["embedding"]) == 8
    labelled = post(client, "/invocations", model="model/classify", input="hello")
    assert set(labelled["data"][0]) == {"index", "label", "probs", "num_classes"}
    ranked = post(client, "/invocations", model="model/rerank", query="hello", documents=["a", "hello"])
    assert {result["index"] for result in ranked["results"]} == {0, 1}
    for queries, items in (("text_1", "text_2"), ("queries", "documents")):
        pairs: dict[str, Any] = {queries: "hello", items: ["a", "b"]}
        scored = post(client, "/invocations", model="model/rerank", **pairs)
        assert [entry["object"] for entry in scored["data"]] == ["score"] * 2
    refusal = post(client, "/invocations", status=400, model="model/embed", input=[])
    assert refusal["error"]["param"] == "input"
