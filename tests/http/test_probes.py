"""Probes are answered at once, however much work waits, and tell within a second that a worker is lost."""

import statistics
import time
from http.client import HTTPConnection

import pytest

from support.http_server import HttpServer, occupy, serve_in_thread, wait_until
from vecmill.config import MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.mill import Mill

LIMIT_S = 0.005
PROBES = 200


def probe_times(server: HttpServer, path: str) -> list[float]:
    """The seconds from each probe to its answer, on one connection."""
    times = []
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(PROBES):
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - began)
        assert answer.status == 200
    connection.close()
    return times


@pytest.mark.promise("honest-health")
def test_probes_do_not_wait_for_work() -> None:
    engine = FakeEngine(dim=384, faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=500, timeout_s=60.0))
    with serve_in_thread(engine=engine, config=config) as server:
        waiting = [occupy(server, 1), occupy(server, 499)]
        refused = server.client.post("/embeddings", json={"input": ["a", "b"]})
        assert refused.status_code == 429
        for path in ("/livez", "/readyz"):
            assert statistics.median(probe_times(server, path)) < LIMIT_S
        engine.released.set()
        for thread in waiting:
            thread.join()


@pytest.mark.promise("honest-health")
def test_readiness_is_gone_within_a_second_of_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_in_thread() as server:
        assert server.client.get("/readyz").status_code == 200
        monkeypatch.setattr(Mill, "is_lost", True)
        wait_until(lambda: server.client.get("/readyz").status_code == 503, patience_s=1.0)
        assert server.client.get("/readyz").json()["status"] == "lost"
        assert server.client.get("/livez").status_code == 200
