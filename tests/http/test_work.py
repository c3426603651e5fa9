"""Work under way: clients that leave, engines that fail, counts that add up."""

import json
import logging
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.http_server import DIM, MODEL, HttpServer, hanging_engine, serve_in_thread, wait_until
from vecmill.config import BatchConfig, MillConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill_server.base.settings import ServerSettings, TokenIds

ONE_LANE = MillConfig(cores=1, batch=BatchConfig(max_batch_tokens=8))


@pytest.fixture
def stuck() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set."""
    with serve_in_thread(ServerSettings(lame_duck_s=0), config=ONE_LANE, engine=hanging_engine()) as server:
        yield server


def send_embeddings(server: HttpServer, *texts: str) -> socket.socket:
    body = json.dumps({"input": texts}).encode()
    connection = server.connect()
    head = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    return connection


def finished(server: HttpServer, outcome: str) -> float:
    return server.metric("vecmill_texts_finished_total", model=MODEL, outcome=outcome)


@pytest.mark.promise("departed-clients")
@pytest.mark.parametrize("manner", ["closed", "reset"])
def test_what_a_client_that_left_was_waiting_for_is_not_computed(stuck: HttpServer, manner: str) -> None:
    running = send_embeddings(stuck, "running")
    wait_until(lambda: len(stuck.engine.calls) == 1)
    waiting = send_embeddings(stuck, "never", "to be", "computed")
    wait_until(lambda: stuck.metric("vecmill_texts_admitted_total", model=MODEL) == 4)
    assert stuck.metric("vecmill_queue_texts", model=MODEL) == 3
    if manner == "reset":
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    waiting.close()
    wait_until(lambda: finished(stuck, "cancelled") == 3)
    stuck.engine.released.set()
    assert running.recv(65_536).startswith(b"HTTP/1.1 200 ")
    running.close()
    assert stuck.is_well()
    assert [texts for texts, _ in stuck.engine.calls] == [1, 1]
    assert stuck.metric("vecmill_http_requests_total", route="embeddings", status="499") == 1


@pytest.mark.promise("failure-contained", "finite-embeddings")
def test_a_text_that_the_engine_fails_on_fails_alone() -> None:
    poison, nan = 5_000, 5_001
    engine = FakeEngine(dim=DIM, faults=FaultScript(poison=frozenset({poison}), nan=frozenset({nan})))
    settings = ServerSettings(lame_duck_s=0, token_ids=TokenIds.NATIVE)
    with serve_in_thread(settings, engine=engine) as server, ThreadPoolExecutor(16) as pool:
        ids = [[poison], [nan], *([number] for number in range(100, 130))]
        answers = list(pool.map(lambda one: server.client.post("/embeddings", json={"input": one}), ids))
        for answer, code in zip(answers[:2], ("inference_failed", "non_finite_output"), strict=True):
            assert answer.status_code == 500
            assert answer.headers["x-should-retry"] == "false"
            assert answer.json()["error"]["type"] == "server_error"
            assert server.metric("vecmill_http_errors_total", reason=code) == 1
        for one, answer in zip(ids[2:], answers[2:], strict=True):
            expected = hash_row(np.array(one), DIM)
            np.testing.assert_allclose(answer.json()["data"][0]["embedding"], expected, rtol=1e-6)


@pytest.mark.promise("lost-lane-noticed")
def test_a_call_that_means_to_end_its_thread_costs_its_text_alone() -> None:
    engine = FakeEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.DIE}))
    with serve_in_thread(config=ONE_LANE, engine=engine) as server:
        answer = server.client.post("/embeddings", json={"input": "unlucky"})
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"
        assert server.client.get("/readyz").status_code == 200
        assert server.is_well()
        assert server.metric("vecmill_lane_state", model=MODEL, lane="0", state="idle") == 1
        assert server.metric("vecmill_lane_state", model=MODEL, lane="0", state="dead") == 0


@pytest.mark.promise("lost-lane-noticed")
def test_an_engine_without_its_device_makes_the_process_unready() -> None:
    engine = FakeEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.DEVICE}))
    with serve_in_thread(config=ONE_LANE, engine=engine) as server:
        answer = server.client.post("/embeddings", json={"input": "unlucky"})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert server.client.post("/embeddings", json={"input": "hello"}).status_code == 503
        assert len(engine.calls) == 1
        assert server.client.get("/readyz").status_code == 503
        assert server.client.get("/livez").status_code == 200
        assert server.metric("vecmill_lane_state", model=MODEL, lane="0", state="dead") == 1


@pytest.mark.promise("counts-agree")
def test_the_metrics_add_up_with_each_other_and_with_the_client() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    sizes = [draw.randint(1, 5) for _ in range(200)]
    with serve_in_thread(engine=FakeEngine(dim=DIM, faults=FaultScript(share=0.05, seed=seed))) as server:
        texts = iter(range(10_000))
        bodies = [{"input": [f"text {next(texts)}" for _ in range(size)]} for size in sizes]
        bodies += [{"input": []}] * 7
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda body: server.client.post("/embeddings", json=body), bodies))
        statuses = Counter(answer.status_code for answer in answers)
        answered = sum(len(answer.json()["data"]) for answer in answers if answer.status_code == 200)
        tokens = sum(
            answer.json()["usage"]["total_tokens"] for answer in answers if answer.status_code == 200
        )
        admitted = server.metric("vecmill_texts_admitted_total", model=MODEL)
        assert admitted == sum(sizes)
        assert admitted == sum(
            finished(server, outcome) for outcome in ("done", "failed", "expired", "cancelled")
        )
        assert finished(server, "done") >= answered
        assert server.metric("vecmill_tokens_admitted_total", model=MODEL) >= tokens
        wait_until(lambda: counted(server, statuses) == statuses)
        assert server.metric("vecmill_http_errors_total", reason="invalid_request") == 7
        assert server.metric("vecmill_queue_texts", model=MODEL) == 0
        calls = server.metric("vecmill_batch_texts_count", model=MODEL)
        assert calls == server.metric("vecmill_inference_seconds_count", model=MODEL) > 0


def counted(server: HttpServer, statuses: Counter[int]) -> Counter[int]:
    name = "vecmill_http_requests_total"
    return Counter(
        {status: int(server.metric(name, route="embeddings", status=str(status))) for status in statuses}
    )


@pytest.mark.promise("bounded-metrics")
def test_no_request_adds_a_series(server: HttpServer) -> None:
    def send(number: int) -> None:
        server.client.get(f"/path/{number}", headers={"x-request-id": f"id-{number}", "api-key": str(number)})
        server.client.post("/embeddings", json={"input": "a", "model": f"model-{number}"})
        server.client.request(f"M{number}", "/models")

    send(0)
    server.client.get("/metrics")  # which is a route as well
    before = server.client.get("/metrics").text.count("\n")
    for number in range(1, 30):
        send(number)
    assert server.client.get("/metrics").text.count("\n") == before


@pytest.mark.promise("answered-once")
def test_every_client_gets_its_own_rows(server: HttpServer) -> None:
    def ask(number: int) -> bool:
        texts = [f"number {number} {part}" for part in range(3)]
        rows = server.client.post("/embeddings", json={"input": texts}).json()["data"]
        alone = server.client.post("/embeddings", json={"input": texts[1]}).json()["data"]
        return len(rows) == 3 and bool(rows[1]["embedding"] == alone[0]["embedding"])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(100)))


@pytest.mark.promise("private-logs")
def test_logs_tell_of_requests_and_not_of_texts(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(lame_duck_s=0, access_log=True)
    with caplog.at_level(logging.INFO), serve_in_thread(settings) as server:
        headers = {"x-request-id": "the-id"}
        server.client.post("/embeddings", json={"input": ["private words", "more"]}, headers=headers)
        server.client.post("/embeddings", json={"input": [["private words"]]}, headers=headers)
    good, bad = [record for record in caplog.records if record.name == "vecmill.access"]
    assert (good.request_id, good.route, good.status, good.texts) == ("the-id", "embeddings", 200, 2)  # type: ignore[attr-defined]
    assert (bad.status, bad.reason) == (400, "invalid_request")  # type: ignore[attr-defined]
    assert not [record for record in caplog.records if "private" in str(record.__dict__)]


def test_what_nobody_foresaw_is_500_in_json_and_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("private details")

    with serve_in_thread() as server:
        monkeypatch.setattr(server.service.catalog, "resolve", explode)
        answer = server.client.post("/embeddings", json={"input": "a"}, headers={"x-request-id": "the-id"})
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] == "the-id"
        assert answer.json()["error"]["code"] == "internal_error"
        assert "private" not in answer.text
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.request_id == "the-id"  # type: ignore[attr-defined]
    assert record.exc_info is not None


@pytest.mark.promise("loop-responsive")
def test_the_loop_goes_on_while_large_requests_are_read_and_written(server: HttpServer) -> None:
    texts = [f"a text of a large request, number {number}" for number in range(2_000)]
    done = threading.Event()

    def send() -> None:
        assert server.client.post("/embeddings", json={"input": texts}).status_code == 200
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    slowest_s = 0.0
    while not done.is_set():
        slowest_s = max(slowest_s, server.client.get("/livez").elapsed.total_seconds())
    thread.join()
    assert slowest_s < 1.0
