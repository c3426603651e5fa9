"""An asymmetric model embeds queries and documents differently, on every route that states a purpose."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.batches import create_batch, ended, lines_of, request_line
from support.http_server import QUIET, post, serve_in_thread, wait_until
from support.task_models import save_dense_router, save_sparse_router, save_task_model
from vecmill.directory_layouts import describe_model
from vecmill.engines.table import TableEngine
from vecmill.models import locate_model
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings

# The engine computes hashes for documents; queries are looked up in the model's own table.
TEXT = "the one in the end"


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Any]]:
    folder = tmp_path_factory.mktemp("models")
    oracle = save_sparse_router(folder / "sparse", save_task_model(folder / "masked", "BertForMaskedLM"))
    with serve_in_thread(models=[describe_model(locate_model(folder / "sparse"))]) as server:
        yield server.client, oracle


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Any]]:
    folder = tmp_path_factory.mktemp("models")
    oracle = save_dense_router(folder / "dense", save_task_model(folder / "bert", "BertModel"))
    with serve_in_thread(models=[describe_model(locate_model(folder / "dense"))]) as server:
        yield server.client, oracle


def test_the_fields_for_the_purpose_choose_the_route_of_sparse_embeddings(
    sparse: tuple[httpx.Client, Any],
) -> None:
    client, oracle = sparse
    row = oracle.encode_query([TEXT], convert_to_sparse_tensor=False)[0].tolist()
    expected = {index: pytest.approx(value, abs=1e-6) for index, value in enumerate(row) if value}
    assert expected
    queries: list[Any] = [{"input_type": "query"}, {"input_type": "search_query"}, {"prompt_name": "query"}]
    for fields in queries:
        (query,) = post(client, "/embed_sparse", inputs=TEXT, **fields)
        assert {each["index"]: each["value"] for each in query} == expected
    (plain,) = post(client, "/embed_sparse", inputs=TEXT)
    (document,) = post(client, "/embed_sparse", inputs=TEXT, input_type="document")
    assert plain == document
    assert {each["index"]: each["value"] for each in plain} != expected


def test_the_fields_for_the_purpose_choose_the_route_of_dense_embeddings(
    dense: tuple[httpx.Client, Any],
) -> None:
    client, oracle = dense
    expected = pytest.approx(oracle.encode_query([TEXT])[0].tolist(), abs=1e-6)
    queries: list[Any] = [{"task": "retrieval.query"}, {"input_type": "query"}]
    for fields in queries:
        (entry,) = post(client, "/v1/embeddings", input=TEXT, **fields)["data"]
        assert entry["embedding"] == expected
    (row,) = post(client, "/embed", inputs=TEXT, prompt_name="query")
    assert row == expected
    found = post(client, "/v2/embed", texts=[TEXT], input_type="search_query", embedding_types=["float"])
    assert found["embeddings"]["float"][0] == expected
    (entry,) = post(client, "/v1/embeddings", input=TEXT)["data"]
    assert entry["embedding"] != expected


def test_a_rerank_compares_a_query_with_documents(sparse: tuple[httpx.Client, Any]) -> None:
    client, _ = sparse
    (query,) = post(client, "/embed_sparse", inputs="the one", input_type="query")
    weights = {each["index"]: each["value"] for each in query}
    texts = [TEXT, "which of it"]
    rows = post(client, "/embed_sparse", inputs=texts, input_type="document")
    expected = [sum(weights.get(each["index"], 0) * each["value"] for each in row) for row in rows]
    found = {each["index"]: each["score"] for each in post(client, "/rerank", query="the one", texts=texts)}
    assert found == {index: pytest.approx(score, abs=1e-4) for index, score in enumerate(expected)}


def test_a_purpose_of_neither_route_is_refused_by_its_field(
    sparse: tuple[httpx.Client, Any], dense: tuple[httpx.Client, Any]
) -> None:
    for client, path, body in (
        (sparse[0], "/embed_sparse", {"inputs": TEXT}),
        (dense[0], "/v1/embeddings", {"input": TEXT}),
    ):
        answer = client.post(path, json={**body, "input_type": "clustering"})
        assert answer.status_code in (400, 422)
        assert "`input_type` is clustering" in answer.text


def test_without_a_default_route_the_server_asks_for_the_purpose(tmp_path: Path) -> None:
    masked = save_task_model(tmp_path / "masked", "BertForMaskedLM")
    save_sparse_router(tmp_path / "m", masked, default_route=None, allow_empty_key=False)
    with serve_in_thread(models=[describe_model(locate_model(tmp_path / "m"))]) as server:
        answer = server.client.post("/embed_sparse", json={"inputs": TEXT})
        assert answer.status_code in (400, 422)
        assert "`input_type` is missing" in answer.text
        post(server.client, "/embed_sparse", inputs=TEXT, input_type="document")
        post(server.client, "/rerank", query="the one", texts=[TEXT])


def test_queries_are_in_the_metrics_of_texts(tmp_path: Path) -> None:
    save_sparse_router(tmp_path / "m", save_task_model(tmp_path / "masked", "BertForMaskedLM"))
    with serve_in_thread(models=[describe_model(locate_model(tmp_path / "m"))]) as server:
        post(server.client, "/embed_sparse", inputs=[TEXT, "the one"], input_type="query")

        def count(name: str, **labels: str) -> float:
            return server.metric(f"vecmill_{name}", model="m", **labels)

        assert count("texts_admitted_total") == count("texts_finished_total", outcome="done") == 2
        assert count("tokens_admitted_total") == count("tokens_total") == 7
        assert count("queue_wait_seconds_count") == count("batch_texts_sum") == 2
        assert count("batch_tokens_sum") == 7
        assert count("inference_seconds_count") >= 1
        assert server.metric("vecmill_http_requests_total", route="embed_sparse", status="200") == 1
        post(server.client, "/rerank", query="the one", texts=[TEXT])
        assert count("texts_finished_total", outcome="done") == 4
        lanes = [
            sample.labels["lane"]
            for family in server.service.metrics.copy().families()
            for sample in family.samples
            if sample.name == "vecmill_lane_state" and sample.labels["state"] == "idle"
        ]
        assert lanes == [str(number) for number in range(len(lanes))]
        assert len(lanes) >= 2


def test_a_query_of_a_client_that_leaves_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sparse_router(tmp_path / "m", save_task_model(tmp_path / "masked", "BertForMaskedLM"))
    is_ready, has_begun, may_end = threading.Event(), threading.Event(), threading.Event()
    look_up = TableEngine.run
    description = describe_model(locate_model(tmp_path / "m"))

    def run(engine: TableEngine, batch: Batch, *, width: int) -> Embeddings:
        if is_ready.is_set():  # not in the self-check and the warm-up
            has_begun.set()
            may_end.wait()
        return look_up(engine, batch, width=width)

    monkeypatch.setattr(TableEngine, "run", run)
    body = b'{"inputs": "the one", "input_type": "query"}'
    head = b"POST /embed_sparse HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serve_in_thread(models=[description]) as server:
        is_ready.set()
        try:
            with server.connect() as staying:
                staying.sendall(head + body)
                assert has_begun.wait(20)
                with server.connect() as leaving:
                    leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    leaving.sendall(head + body.replace(b"the one", b"the end"))
                    wait_until(lambda: server.metric("vecmill_texts_open", model="m") == 2)
                wait_until(lambda: server.metric("vecmill_texts_open", model="m") == 1)
                may_end.set()
                assert staying.recv(12) == b"HTTP/1.1 200"
        finally:
            may_end.set()
        wait_until(
            lambda: (
                server.metric("vecmill_http_requests_total", route="embed_sparse", status="499") == 1
                and server.metric("vecmill_texts_finished_total", model="m", outcome="cancelled") == 1
            )
        )


def test_the_lists_of_models_tell_of_queries(sparse: tuple[httpx.Client, Any], tmp_path: Path) -> None:
    client, _ = sparse
    (entry,) = client.get("/v1/models").json()["data"]
    assert entry["queries"] == {"engine": "table", "precision": "fp32", "max_model_len": 40}
    assert entry["default_input_type"] == "document"
    (model,) = client.get("/console/models.json").json()["models"]
    assert model["facts"]["engine of queries"] == "table"
    assert model["facts"]["longest query, tokens"] == 40


def test_batches_embed_queries(tmp_path: Path) -> None:
    oracle = save_dense_router(tmp_path / "m", save_task_model(tmp_path / "bert", "BertModel"))
    settings = replace(QUIET, batch_dir=tmp_path / "batches")
    description = describe_model(locate_model(tmp_path / "m"))
    with serve_in_thread(settings, models=[description]) as server:
        body = {"model": "m", "input": TEXT, "input_type": "query"}
        batch = create_batch(server.client, [request_line("a", body)])
        done = ended(server.client, batch)
        (line,) = lines_of(server.client, done["output_file_id"])
    found = line["response"]["body"]["data"][0]["embedding"]
    assert found == pytest.approx(oracle.encode_query([TEXT])[0].tolist(), abs=1e-6)
