"""While the model loads the port is open: probes tell the truth, and work is told when to come again."""

import logging
import threading
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

import pytest
import schemathesis

from support.http_server import QUIET, SlowToLoad, serve_in_thread, wait_until
from vecmill_server.batches.folder import Folder
from vecmill_server.telemetry.logs import ACCESS_LOG


@pytest.mark.promise("verified-start", "honest-health")
def test_probes_and_work_know_that_the_model_is_loading() -> None:
    engine = SlowToLoad()
    with serve_in_thread(engine=engine, wait=False) as server:
        try:
            assert server.client.get("/livez").status_code == 200
            answer = server.client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "loading")
            for path, body in (
                ("/embeddings", {"input": "a"}),
                ("/rerank", {"query": "a", "documents": ["b"]}),
            ):
                answer = server.client.post(path, json=body)
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "service_unavailable"
                assert int(answer.headers["retry-after"]) >= 1
            answer = server.client.get("/info")
            assert answer.status_code == 503
            assert answer.json()["error_type"] == "Unhealthy"
            assert int(answer.headers["retry-after"]) >= 1
            for path in ("/v1/health", "/props"):
                answer = server.client.get(path)
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["type"]) == (503, 503, "unavailable_error")
            answer = server.client.post("/embed", json={"inputs": "a"})
            assert (answer.status_code, answer.json()["error_type"]) == (503, "Unhealthy")
            assert server.client.get("/models").json()["data"][0]["id"]
            assert server.client.get("/api/tags").json()["models"][0]["name"]
            assert server.client.head("/").status_code == 503
            assert server.client.get("/metrics").status_code == 200
            schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
            for path in ("/livez", "/readyz", "/info", "/models", "/api/tags"):
                schema[path]["GET"].validate_response(server.client.get(path))
        finally:
            engine.may_load.set()
        wait_until(lambda: server.client.get("/readyz").status_code == 200)
        assert server.is_well()


@pytest.mark.promise("honest-health")
def test_a_server_is_not_ready_before_its_batch_folder_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, sweep = threading.Event(), Folder.sweep

    def sweep_slowly(folder: Folder, known: Set[str]) -> None:
        may_open.wait()
        sweep(folder, known)

    monkeypatch.setattr(Folder, "sweep", sweep_slowly)
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path), wait=False) as server:
        try:
            wait_until(lambda: server.client.get("/readyz").json()["models"][0]["state"] == "ready")
            answer = server.client.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "loading")
            assert server.client.get("/v1/files").status_code == 503
        finally:
            may_open.set()
        wait_until(lambda: server.client.get("/readyz").status_code == 200)
        assert server.client.get("/v1/files").status_code == 200


def test_whoever_waits_for_the_model_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[tuple[int, str]]:
        return [(each.levelno, each.__dict__["route"]) for each in caplog.records if each.name == ACCESS_LOG]

    caplog.set_level(logging.DEBUG, ACCESS_LOG)
    engine = SlowToLoad()
    with serve_in_thread(replace(QUIET, access_log=True), engine=engine, wait=False) as server:
        try:
            for path in ("/readyz", "/health", "/livez"):
                server.client.get(path)
            server.client.post("/embeddings", json={"input": "a"})
        finally:
            engine.may_load.set()
        wait_until(lambda: server.client.get("/readyz").status_code == 200)
    assert lines()[:4] == [
        (logging.DEBUG, "readyz"),
        (logging.DEBUG, "health"),
        (logging.INFO, "livez"),
        (logging.INFO, "embeddings"),
    ]
    assert lines()[-1] == (logging.INFO, "readyz")
