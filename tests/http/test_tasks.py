"""Each task has its route and its shape; what a model does not do is an error that says so."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import LABELS, describe_tasks
from support.http_server import HttpServer, post, serve_in_thread
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row, hash_sparse_row, hash_token_rows
from vecmill.models import Task, locate_model
from vecmill.vectors import sigmoid, softmax
from vecmill_server.base.settings import ServerSettings, TokenIds

HELLO, WORLD = [101, 7592, 102], [101, 2088, 102]
HELLO_WORLD = [101, 7592, 102, 2088, 102]


@pytest.fixture
def server(every_task: HttpServer) -> HttpServer:
    return every_task


@pytest.fixture
def client(server: HttpServer) -> httpx.Client:
    return server.client


def ranked(ids: list[int]) -> list[dict[str, Any]]:
    scores = softmax(hash_row(np.array(ids), 3)[None])[0]
    pairs = sorted(zip(("a", "b", "c"), scores.tolist(), strict=True), key=lambda pair: -pair[1])
    return [{"score": pytest.approx(score, abs=1e-6), "label": label} for label, score in pairs]


def test_without_a_name_the_model_is_one_that_does_what_is_asked(client: httpx.Client) -> None:
    assert post(client, "/embeddings", input="hello")["model"] == "model/embed"
    assert post(client, "/rerank", query="hello", documents=["world"])["model"] == "model/rerank"
    assert post(client, "/classify", input="hello")["model"] == "model/classify"
    assert post(client, "/predict", inputs="hello") == ranked(HELLO)


def test_predict_takes_a_text_a_pair_and_a_batch(client: httpx.Client) -> None:
    assert post(client, "/predict", inputs="hello") == ranked(HELLO)
    assert post(client, "/predict", inputs=["hello"]) == ranked(HELLO)
    assert post(client, "/predict", inputs=["hello", "world"]) == ranked(HELLO_WORLD)
    batch = [["hello"], ["hello", "world"], ["world"]]
    assert post(client, "/predict", inputs=batch) == [ranked(HELLO), ranked(HELLO_WORLD), ranked(WORLD)]
    (raw, *_) = post(client, "/predict", inputs="hello", raw_scores=True)
    assert raw["score"] == pytest.approx(hash_row(np.array(HELLO), 3).max(), abs=1e-6)


def test_predict_answers_a_body_with_parameters_as_a_pipeline_does(client: httpx.Client) -> None:
    assert post(client, "/predict", inputs="hello", parameters={}) == [ranked(HELLO)]
    assert post(client, "/predict", inputs="hello", parameters={"top_k": 1}) == [ranked(HELLO)[:1]]
    raw = post(client, "/predict", inputs="hello", raw_scores=True)
    assert post(client, "/predict", inputs="hello", parameters={"function_to_apply": "none"}) == [raw]
    error = post(client, "/predict", status=422, inputs="hello", parameters={"function_to_apply": "softmax"})
    assert "function_to_apply" in error["error"]


@pytest.mark.parametrize(
    "inputs", [None, [], 3, {}, ["a", "b", "c"], [["a", "b", "c"]], [["a"], 3], [[["a"]]], [[]], ["a", 3]]
)
def test_inputs_of_no_known_shape_are_refused(client: httpx.Client, inputs: object) -> None:
    document = post(client, "/predict", status=422, inputs=inputs)
    assert document["error_type"] == "Validation"
    assert document["error"].startswith("`inputs")
    assert set(document) == {"error", "error_type"}


def test_tokens_are_classified_as_a_pipeline_answers(client: httpx.Client) -> None:
    def predict(inputs: object, **settings: Any) -> Any:
        return post(client, "/predict", model="model/classify_tokens", inputs=inputs, **settings)

    text = "hello brave new world of ours"
    tokens = predict(text, aggregation_strategy="none")
    groups = predict(text)
    assert tokens
    assert {tuple(token) for token in tokens} == {("entity", "index", "score", "word", "start", "end")}
    assert {tuple(group) for group in groups} == {("entity_group", "score", "word", "start", "end")}
    for token in tokens:
        assert text[token["start"] : token["end"]] == token["word"]
        assert token["entity"] in LABELS[1:]
    assert " ".join(token["word"] for token in tokens) == " ".join(group["word"] for group in groups)
    assert predict([text, text]) == [groups, groups]
    assert predict([[text], text], parameters={"aggregation_strategy": "none"}) == [tokens, tokens]
    assert post(
        client, "/predict", status=422, model="model/classify_tokens", inputs="a", aggregation_strategy="max"
    )["error"].startswith("`aggregation_strategy`")


def test_classify_answers_infinity_and_vllm_each_in_their_shape(client: httpx.Client) -> None:
    infinity = post(client, "/classify", input=["hello", "world"], raw_scores=False)
    assert infinity["object"] == "classify"
    assert infinity["data"] == [ranked(HELLO), ranked(WORLD)]
    assert infinity["usage"] == {"prompt_tokens": 6, "total_tokens": 6, "completion_tokens": 0}
    vllm = post(client, "/v1/classify", input=["hello", "world"])
    assert vllm["object"] == "list"
    first, second = vllm["data"]
    assert (first["index"], first["label"], first["num_classes"]) == (0, ranked(HELLO)[0]["label"], 3)
    np.testing.assert_allclose(second["probs"], softmax(hash_row(np.array(WORLD), 3)[None])[0], atol=1e-6)
    raw = post(client, "/classify", input="hello", use_activation=False)["data"][0]["probs"]
    np.testing.assert_allclose(raw, hash_row(np.array(HELLO), 3), atol=1e-6)


@pytest.mark.parametrize("settings", [{"raw_scores": True}, {"use_activation": False}, {}])
def test_a_cross_encoder_reranks_by_its_own_activation(
    client: httpx.Client, settings: dict[str, bool]
) -> None:
    document = post(client, "/rerank", query="hello", documents=["world", "hello"], **settings)
    logits = np.array([hash_row(np.array([*HELLO, *other[1:]]), 1)[0] for other in (WORLD, HELLO)])
    scores = logits if settings else sigmoid(logits)
    found = {entry["index"]: entry["relevance_score"] for entry in document["results"]}
    assert [found[0], found[1]] == pytest.approx(scores.tolist(), abs=1e-6)
    assert document["usage"]["total_tokens"] == 10


def test_a_sparse_model_reranks_by_the_dot_product(client: httpx.Client) -> None:
    found = post(
        client, "/rerank", model="model/sparse", query="hello", documents=["world", "hello world", "hello"]
    )
    scores = {entry["index"]: entry["relevance_score"] for entry in found["results"]}
    query, *documents = (
        hash_sparse_row(np.array(ids), describe_model(locate_model()).vocab_size)
        for ids in (HELLO, WORLD, [101, 7592, 2088, 102], HELLO)
    )
    weights = dict(zip(query.columns.tolist(), query.values.tolist(), strict=True))
    for index, row in enumerate(documents):
        pairs = zip(row.columns.tolist(), row.values.tolist(), strict=True)
        assert scores[index] == pytest.approx(sum(weights.get(column, 0) * value for column, value in pairs))


def test_sparse_rows_are_columns_and_values(client: httpx.Client) -> None:
    found = post(client, "/embed_sparse", inputs=["hello", "world"])
    vocabulary = describe_model(locate_model()).vocab_size
    for entries, ids in zip(found, (HELLO, WORLD), strict=True):
        row = hash_sparse_row(np.array(ids), vocabulary)
        assert [entry["index"] for entry in entries] == row.columns.tolist()
        assert [entry["value"] for entry in entries] == pytest.approx(row.values.tolist())
    assert len(post(client, "/embed_sparse", inputs="hello")) == 1


def test_every_token_has_its_row(client: httpx.Client) -> None:
    found = post(client, "/embed_all", inputs=["hello", "hello world"])
    np.testing.assert_allclose(found[0], hash_token_rows(np.array(HELLO), 4), atol=1e-6)
    assert [len(rows) for rows in found] == [3, 4]
    assert post(client, "/embed_all", inputs="hello", prompt_name="query") == found[:1]
    error = post(client, "/embed_all", status=422, inputs="hello", prompt_name="passage")
    assert "no prompt named 'passage'" in error["error"]


@pytest.mark.parametrize("path", ["/embeddings", "/openai/deployments/model/multi_vector/embeddings"])
def test_a_multi_vector_model_gives_a_matrix_for_each_text(client: httpx.Client, path: str) -> None:
    texts = ["hello", "hello world"]
    matrices = post(client, "/embed_all", inputs=texts, model="model/multi_vector")
    asked: dict[str, Any] = {"input": texts, "model": "model/multi_vector"}
    answer = post(client, path, **asked)
    assert answer["usage"]["total_tokens"] > 0
    assert [entry["embedding"] for entry in answer["data"]] == matrices
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [
        ("embedding", 0),
        ("embedding", 1),
    ]
    packed = post(client, path, **asked, encoding_format="base64")["data"]
    for entry, matrix in zip(packed, matrices, strict=True):
        found = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
        np.testing.assert_array_equal(found, np.ravel(matrix).astype(np.float32))


@pytest.mark.parametrize(
    ("others", "gives_matrices"),
    [((), True), ((Task.RERANK,), True), ((Task.RERANK, Task.EMBED), False)],
    ids=["alone", "beside a reranker", "beside an embedding model"],
)
def test_without_a_name_a_multi_vector_model_answers_if_no_model_embeds_whole_texts(
    others: tuple[Task, ...], gives_matrices: bool
) -> None:
    models = describe_tasks()
    with serve_in_thread(models=[*(models[task] for task in others), models[Task.MULTI_VECTOR]]) as server:
        answer = post(server.client, "/embeddings", input="hello")
        matrices = post(server.client, "/embed_all", inputs="hello")
    assert answer["model"] == ("model/multi_vector" if gives_matrices else "model/embed")
    assert (answer["data"][0]["embedding"] == matrices[0]) is gives_matrices


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"dimensions": 2}, "dimensions"),
        ({"output_dtype": "int8"}, "model"),
        ({"normalize": False}, "normalize"),
        ({"embd_normalize": -1}, "normalize"),
        ({"encoding_format": "bytes_only"}, "encoding_format"),
        ({"chunking": {"mode": "pooled", "tokens": 16}}, "model"),
    ],
)
def test_what_a_matrix_cannot_be_is_told(client: httpx.Client, wrong: dict[str, Any], field: str) -> None:
    body: dict[str, Any] = {"input": "hello", "model": "model/multi_vector", **wrong}
    assert post(client, "/embeddings", status=400, **body)["error"]["param"] == field


@pytest.mark.parametrize(
    ("path", "body", "task"),
    [
        ("/embeddings", {"input": "a"}, Task.RERANK),
        ("/embeddings", {"input": "a"}, Task.SPARSE),
        ("/rerank", {"query": "a", "documents": ["b"]}, Task.CLASSIFY),
        ("/classify", {"input": "a"}, Task.EMBED),
        ("/predict", {"inputs": "a"}, Task.EMBED),
        ("/embed_sparse", {"inputs": "a"}, Task.MULTI_VECTOR),
        ("/embed_all", {"inputs": "a"}, Task.SPARSE),
    ],
)
def test_what_a_model_does_not_do_is_told_clearly(
    client: httpx.Client, path: str, body: dict[str, Any], task: Task
) -> None:
    is_tei = "inputs" in body
    document = post(client, path, status=424 if is_tei else 400, model=f"model/{task}", **body)
    message = document["error"] if is_tei else document["error"]["message"]
    assert f"model/{task}" in message
    assert "it cannot" in message
    if is_tei:
        assert document["error_type"] == "Backend"
    else:
        assert document["error"]["code"] == "model_not_supported"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": "a", "modality": "image"}, "Send a picture as a data URI"),
        ({"input": ["https://host/image.png"], "modality": "audio"}, "does not read audio"),
        ({"input": [{"image": "data:image/png;base64,AAAA"}]}, "it cannot embed pictures"),
    ],
)
def test_images_and_audio_are_a_clear_400(client: httpx.Client, body: dict[str, Any], message: str) -> None:
    assert message in post(client, "/embeddings", status=400, **body)["message"]


def test_models_tell_what_they_are_for(client: httpx.Client) -> None:
    entries = {entry["id"]: entry for entry in client.get("/models").json()["data"]}
    assert set(entries) == {f"model/{task}" for task in Task}
    for task, description in describe_tasks().items():
        entry = entries[f"model/{task}"]
        assert (entry["task"], entry["dim"], entry["max_model_len"]) == (task, description.dim, 256)
        assert (entry["backend"], entry["precision"]) == ("fake", "exact")


def test_each_model_counts_and_bounds_for_itself(server: HttpServer) -> None:
    def counted(task: Task) -> float:
        return server.metric("vecmill_texts_admitted_total", model=f"model/{task}")

    before = {task: counted(task) for task in Task}
    post(server.client, "/embed_sparse", inputs=["one", "two", "three"])
    after = {task: counted(task) - before[task] for task in Task}
    assert after == {task: 3 if task is Task.SPARSE else 0 for task in Task}


def test_tei_errors_keep_their_shape_and_their_counts(server: HttpServer) -> None:
    before = server.metric("vecmill_http_errors_total", reason="input_too_long")
    document = post(server.client, "/predict", status=422, inputs="hello " * 300, truncate=False)
    words = "`inputs` must have less than 256 tokens. Given: 302. The text is `inputs[0]`."
    assert document["error"] == words
    assert server.metric("vecmill_http_errors_total", reason="input_too_long") == before + 1
    assert (
        post(server.client, "/predict", status=404, inputs="a", model="nobody")["error_type"] == "Validation"
    )
    assert server.client.post("/predict", content=b"{").status_code == 400


def test_classify_takes_the_model_s_own_ids() -> None:
    settings = ServerSettings(token_ids=TokenIds.NATIVE, lame_duck_s=0)
    with serve_in_thread(settings, models=[describe_tasks()[Task.CLASSIFY]]) as server:
        texts = post(server.client, "/classify", input=["hello", "world"])["data"]
        for ids in ([HELLO, WORLD], [HELLO, "world"]):
            assert post(server.client, "/classify", input=ids)["data"] == texts
        (one,) = post(server.client, "/classify", input=HELLO)["data"]
        assert one == texts[0]
        refusal = post(server.client, "/classify", status=400, input=[[30_522]])
        assert refusal["error"]["param"].startswith("input[0]")
