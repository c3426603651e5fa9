"""Text Embeddings Inference's clients: its shapes, its errors, its headers. /predict is in `test_tasks`."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import PROMPTS, describe_prompted, describe_tasks, row_of, token_ids
from support.http_server import DIM, MODEL, HttpServer, post, serve_in_thread
from vecmill.config import BatchConfig, MillConfig
from vecmill.engines.fake import FakeEngine, FaultScript, hash_token_rows
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings

HEADERS = {
    "x-compute-type",
    "x-compute-time",
    "x-compute-characters",
    "x-compute-tokens",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
}


def refusal(client: httpx.Client, path: str, *, status: int = 422, **body: Any) -> tuple[str, str]:
    document = post(client, path, status=status, **body)
    assert set(document) == {"error", "error_type"}
    return document["error"], document["error_type"]


@pytest.mark.parametrize("inputs", ["hello", ["hello"]])
def test_one_text_gives_a_list_of_one_row(client: httpx.Client, inputs: object) -> None:
    found = post(client, "/embed", inputs=inputs, truncate=None, prompt_name=None, dimensions=None)
    np.testing.assert_allclose(found, [row_of("hello", DIM)], rtol=1e-6)


def test_rows_have_length_1_unless_they_are_not_to(every_task: HttpServer) -> None:
    """As TEI does, whatever the model. The one here does not normalise."""
    assert not describe_tasks()[Task.EMBED].normalize
    settings: dict[str, Any]
    for settings in ({}, {"normalize": None}, {"normalize": True}, {"parameters": {"normalize": True}}):
        (row,) = post(every_task.client, "/embed", inputs="hello", dimensions=4, **settings)
        assert np.linalg.norm(row) == pytest.approx(1, rel=1e-6)
    for settings in ({"normalize": False}, {"normalize": "false"}, {"parameters": {"normalize": False}}):
        (row,) = post(every_task.client, "/embed", inputs="hello", dimensions=4, **settings)
        np.testing.assert_allclose(row, row_of("hello", 8)[:4], rtol=1e-6)


@pytest.mark.parametrize(
    ("direction", "kept"), [("Left", "three four five"), ("right", "one two three"), (None, "one two three")]
)
def test_long_texts_are_cut_on_the_side_that_is_named(
    client: httpx.Client, direction: str | None, kept: str
) -> None:
    body: dict[str, Any] = {
        "inputs": "one two three four five",
        "truncate_prompt_tokens": 5,
        "truncation_direction": direction,
    }
    np.testing.assert_allclose(post(client, "/embed", **body), row_of(kept, DIM)[None], rtol=1e-6)
    assert refusal(client, "/embed", inputs="a", truncation_direction="Up")[1] == "Validation"


def test_the_headers_say_where_the_time_went(client: httpx.Client) -> None:
    answer = client.post("/embed", json={"inputs": ["hello", "hello world"]})
    assert set(answer.headers) >= HEADERS
    assert answer.headers["x-compute-characters"] == "16"
    assert answer.headers["x-compute-tokens"] == "7"
    for name in HEADERS - {"x-compute-type"}:
        assert answer.headers[name].isdigit()
    ranked = client.post("/rerank", json={"query": "hello", "texts": ["a", "bb"]})
    assert ranked.headers["x-compute-characters"] == "13"  # the query is read with each text


def test_the_headers_say_on_which_device_it_was_computed() -> None:
    engine = FakeEngine(dim=DIM)
    engine.info = replace(engine.info, device="cuda:1")
    with serve_in_thread(engine=engine) as server:
        answer = server.client.post("/embed", json={"inputs": "hello"})
    assert answer.headers["x-compute-type"] == "cuda:1"


def test_a_rerank_is_a_bare_list(client: httpx.Client) -> None:
    body: dict[str, Any] = {"query": "hello", "texts": ["world", "hello", "a"], "raw_scores": False}
    found = post(client, "/rerank", truncation_direction="Right", **body)
    assert [set(entry) for entry in found] == [{"index", "score"}] * 3
    assert found[0] == {"index": 1, "score": pytest.approx(1, abs=1e-6)}
    assert [entry["score"] for entry in found] == sorted((one["score"] for one in found), reverse=True)
    (best,) = post(client, "/rerank", return_text=True, top_n=1, **body)
    assert best["text"] == "hello"
    assert refusal(client, "/rerank", texts=["a"])[1] == "Validation"


def test_similarity_is_the_cosine(client: httpx.Client) -> None:
    inputs = {"source_sentence": "hello", "sentences": ["world", "hello"]}
    found = post(client, "/similarity", inputs=inputs, parameters={"truncate": False})
    cosine = float(row_of("hello", DIM) @ row_of("world", DIM))
    assert found == pytest.approx([cosine, 1], abs=1e-6)
    for wrong in (None, "a", {}, {"source_sentence": "a"}, {"source_sentence": "a", "sentences": "b"}):
        assert refusal(client, "/similarity", inputs=wrong)[0].startswith("`inputs")


def test_tokens_have_their_places(client: httpx.Client) -> None:
    found = post(client, "/tokenize", inputs="hello world", add_special_tokens=True)
    assert found == [
        [
            {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None},
            {"id": 7592, "text": "hello", "special": False, "start": 0, "stop": 5},
            {"id": 2088, "text": "world", "special": False, "start": 6, "stop": 11},
            {"id": 102, "text": "[SEP]", "special": True, "start": None, "stop": None},
        ]
    ]
    plain = post(client, "/tokenize", inputs=["hello", "world"], add_special_tokens=False)
    assert [[token["id"] for token in tokens] for tokens in plain] == [[7592], [2088]]


def test_ids_are_decoded(client: httpx.Client) -> None:
    assert post(client, "/decode", ids=[101, 7592, 102]) == ["hello"]
    assert post(client, "/decode", ids=[[7592], [2088]]) == ["hello", "world"]
    assert post(client, "/decode", ids=[101, 7592], skip_special_tokens=False) == ["[CLS] hello"]
    wrong: Any
    for wrong in (None, "a", [[-1]], [30_522], [7592, "a"]):
        assert refusal(client, "/decode", ids=wrong)[0].lstrip("`").startswith("ids")


@pytest.mark.parametrize("path", ["/embed", "/embed_sparse", "/embed_all", "/predict"])
def test_what_is_too_long_is_refused_in_tei_s_words(every_task: HttpServer, path: str) -> None:
    words = "`inputs` must have less than 256 tokens. Given: 302. The text is `inputs[0]`."
    assert refusal(every_task.client, path, inputs="hello " * 300, truncate=False) == (words, "Validation")
    assert every_task.client.post(path, json={"inputs": "hello " * 300}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {"inputs": []}) for path in ("/embed", "/embed_sparse", "/embed_all", "/tokenize", "/")),
        ("/rerank", {"query": "a", "texts": []}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}),
        ("/decode", {"ids": []}),
        ("/decode", {"ids": [[]]}),
        ("/vertex", {"instances": []}),
    ],
)
def test_an_empty_list_is_a_400_of_a_kind_of_its_own(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    message, kind = refusal(client, path, status=400, **body)
    assert "is an empty list" in message
    assert kind == "Empty"


@pytest.mark.parametrize("path", ["/embed", "/embed_sparse", "/embed_all", "/predict", "/tokenize"])
@pytest.mark.parametrize("inputs", [None, 3, {}, [{"a": 1}]])
def test_what_is_no_text_is_a_422(every_task: HttpServer, path: str, inputs: object) -> None:
    message, kind = refusal(every_task.client, path, inputs=inputs, add_special_tokens=True)
    assert message.startswith("`inputs")
    assert kind == "Validation"


def test_a_model_that_cannot_is_a_424(every_task: HttpServer) -> None:
    message, kind = refusal(every_task.client, "/embed", status=424, inputs="a", model="model/rerank")
    assert "it cannot embed texts" in message
    assert kind == "Backend"


def test_a_text_that_the_engine_fails_on_is_a_424() -> None:
    poison = int(token_ids("hello")[1])
    engine = FakeEngine(dim=DIM, faults=FaultScript(poison=frozenset({poison})))
    with serve_in_thread(engine=engine) as server:
        assert refusal(server.client, "/embed", status=424, inputs="hello")[1] == "Backend"
        assert server.client.post("/embed", json={"inputs": "world"}).status_code == 200


def test_unknown_models_and_bad_json_have_its_shape(client: httpx.Client) -> None:
    assert refusal(client, "/embed", status=404, inputs="a", model="nobody")[1] == "Validation"
    answer = client.post("/embed", content=b"{")
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "error_type"}


def test_info_tells_of_the_model(client: httpx.Client) -> None:
    info = client.get("/info").json()
    assert set(info) == {
        "model_id",
        "model_sha",
        "model_dtype",
        "served_model_name",
        "model_type",
        "max_concurrent_requests",
        "max_input_length",
        "max_batch_tokens",
        "max_batch_requests",
        "max_client_batch_size",
        "auto_truncate",
        "tokenization_workers",
        "version",
        "sha",
        "docker_label",
        "accuracy",
    }
    assert (info["model_id"], info["max_input_length"], info["max_client_batch_size"]) == (MODEL, 256, 2048)
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["auto_truncate"] is True


def test_info_tells_what_is_assumed_of_the_model() -> None:
    assumed = replace(describe_tasks()[Task.EMBED], assumptions=("Nothing says what it is for.",))
    with serve_in_thread(models=[assumed]) as server:
        assert server.client.get("/info").json()["assumptions"] == ["Nothing says what it is for."]


def test_batches_are_told_as_large_as_they_are() -> None:
    """The engine says how much a call should hold, unless the server was told."""
    for config, size in ((None, 4_096), (MillConfig(batch=BatchConfig(max_batch_tokens=64)), 64)):
        engine = FakeEngine(dim=DIM)
        engine.info = replace(engine.info, batch_tokens=4_096)
        with serve_in_thread(engine=engine, config=config) as server:
            assert server.client.get("/info").json()["max_batch_tokens"] == size
            (model,) = server.client.get("/models").json()["data"]
        assert model["stats"]["batch_size"] == size


@pytest.mark.parametrize(
    ("task", "kind"),
    [(Task.RERANK, "reranker"), (Task.CLASSIFY, "classifier"), (Task.SPARSE, "embedding")],
)
def test_the_kind_of_model_comes_first(task: Task, kind: str) -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0), models=[describe_tasks()[task]]) as server:
        model_type = server.client.get("/info").json()["model_type"]
    assert list(model_type) == [kind]
    if task is Task.RERANK:
        assert model_type["reranker"] == {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def test_places_of_tokens_count_bytes(client: httpx.Client) -> None:
    (tokens,) = post(client, "/tokenize", inputs=["wörld 日本"], add_special_tokens=False)
    assert [(token["text"], token["start"], token["stop"]) for token in tokens] == [
        ("wörld", 0, 6),
        ("日", 7, 10),
        ("本", 10, 13),
    ]


def test_of_equal_scores_the_last_comes_first(client: httpx.Client) -> None:
    found = post(client, "/rerank", query="hello", texts=["world", "hello", "world", "hello"])
    assert [entry["index"] for entry in found] == [3, 1, 2, 0]
    best = post(client, "/rerank", query="hello", texts=["world", "hello", "world", "hello"], top_n=1)
    assert [entry["index"] for entry in best] == [3]


def test_embeddings_at_openai_s_path_have_its_headers(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": ["hello", "hello world"]})
    assert set(answer.headers) >= HEADERS | {"server-timing"}
    assert answer.headers["x-compute-tokens"] == "7"
    assert answer.headers["x-compute-time"].isdigit()


def test_an_embedding_model_gives_the_hidden_states_of_tokens(client: httpx.Client) -> None:
    """Special tokens included, as TEI does. The fake engine gives hashes."""
    found = post(client, "/embed_all", inputs=["hello", "hello world"])
    for states, text in zip(found, ("hello", "hello world"), strict=True):
        np.testing.assert_allclose(states, hash_token_rows(token_ids(text), DIM), rtol=1e-6)


def test_hidden_states_may_follow_any_prompt_of_the_model() -> None:
    with serve_in_thread(models=[describe_prompted()]) as server:
        for name, prompt in PROMPTS.items():
            (states,) = post(server.client, "/embed_all", inputs="hello", prompt_name=name)
            expected = hash_token_rows(token_ids(f"{prompt}hello"), DIM)
            np.testing.assert_allclose(states, expected, rtol=1e-6)
        error, kind = refusal(server.client, "/embed_all", inputs="hello", prompt_name="nobody")
        assert "no prompt named" in error
        assert kind == "Validation"
