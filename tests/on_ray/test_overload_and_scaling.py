"""Serve leaves limits to the server, adds a replica for queued work, and loses no request with a replica."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.ray_server import ray_server, require_ray
from support.server import MODEL, LiveServer
from support.texts import medium_texts

pytestmark = pytest.mark.full

BODY_TIMEOUT_S = 3
CONFIG = f"""
access_log = false
lame_duck_s = 2
drain_s = 20
body_timeout_s = {BODY_TIMEOUT_S}

[defaults]
max_queue_texts = 256

[[models]]
model = "{MODEL}"
"""
SCALING = ("--max-replicas=2", "--queue-s=0.2", "--upscale-delay-s=1", "--downscale-delay-s=5")
PATIENCE_S = 240.0

# Lines of Serve's log.
READY, GONE = "Started HTTP server on port", "is stopped."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One model without a router, one replica or two."""
    require_ray()
    with ray_server(tmp_path_factory.mktemp("ray"), CONFIG, *SCALING) as running:
        yield running


@dataclass
class Load:
    """Clients that send one request after another until the load is stopped."""

    url: str
    texts: list[str]
    # Without a pause, clients in a closed loop keep every replica busy, and none may leave.
    pause_s: float = 0.0
    answers: list[httpx.Response] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def send(self, size: int) -> None:
        """Send requests of `size` texts each, over one connection."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            count = 0
            while not self.is_over.is_set():
                first = count * size % (len(self.texts) - size)
                count += 1
                body = {"model": MODEL, "input": [f"{count} {text}" for text in self.texts[first:][:size]]}
                try:
                    answer = client.post("/v1/embeddings", json=body)
                except httpx.HTTPError as error:
                    self.failures.append(error)
                else:
                    self.answers.append(answer)
                    if answer.status_code == 429:
                        self.is_over.wait(0.05)
                self.is_over.wait(self.pause_s)

    def run(self, *, clients: int, size: int, until: Callable[[], bool]) -> set[int]:
        """Send with several clients until a condition holds, and return the statuses of all answers."""
        with ThreadPoolExecutor(clients) as pool:
            sending = [pool.submit(self.send, size) for _ in range(clients)]
            wait_until(until)
            self.is_over.set()
            for each in sending:
                each.result()
        assert self.failures == []
        return {answer.status_code for answer in self.answers}


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds. Fails after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def count_lines(log: Path, words: str) -> int:
    """The number of lines of a log with these words."""
    return sum(words in line for line in log.read_text("utf-8", errors="replace").splitlines())


def embed(served: LiveServer, texts: list[str], **headers: str) -> httpx.Response:
    return httpx.post(
        f"{served.url}/v1/embeddings", json={"model": MODEL, "input": texts}, headers=headers, timeout=60
    )


def test_a_deadline_is_answered_by_the_server(served: LiveServer) -> None:
    answer = embed(served, medium_texts(1, 64), **{"x-request-timeout-ms": "1"})
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (504, "timeout")


def test_an_id_is_sent_once(served: LiveServer) -> None:
    answer = embed(served, ["a text"], **{"x-request-id": "abc"})
    assert answer.headers.get_list("x-request-id") == ["abc"]


def test_files_and_batches_are_off(served: LiveServer) -> None:
    answer = httpx.get(f"{served.url}/v1/batches")
    assert answer.status_code == 404
    assert "disabled on Ray" in answer.json()["error"]["message"]


def test_a_body_that_comes_late_is_read_and_one_that_does_not_is_given_up(served: LiveServer) -> None:
    body = json.dumps({"model": MODEL, "input": ["a text"]}).encode()
    lines = ("POST /v1/embeddings HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}")
    head = "\r\n".join((*lines, "Content-Type: application/json", "", ""))
    address = "127.0.0.1", httpx.URL(served.url).port
    for rest, status in ((body, b"HTTP/1.1 200"), (body[:-1], b"HTTP/1.1 408")):
        with socket.create_connection(address, timeout=10 * BODY_TIMEOUT_S) as connection:
            connection.sendall(head.encode())
            time.sleep(0.1)  # so that it is another packet
            connection.sendall(rest)
            began = time.monotonic()
            assert connection.recv(4096).startswith(status)
            assert time.monotonic() - began < 3 * BODY_TIMEOUT_S


def test_too_much_work_is_refused_by_the_server(served: LiveServer) -> None:
    texts = medium_texts(2, 256)
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: embed(served, texts), range(64)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    for answer in refused:
        assert answer.status_code == 429, answer.text
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert float(answer.headers["retry-after"]) > 0


def test_a_replica_comes_with_queued_work_and_leaves_without_losing_a_request(served: LiveServer) -> None:
    log = served.log
    ready, gone = count_lines(log, READY), count_lines(log, GONE)
    if ready - gone == 1:  # otherwise an earlier test has added the replica
        busy = Load(served.url, medium_texts(3, 4_000))
        statuses = busy.run(clients=16, size=24, until=lambda: count_lines(log, READY) > ready)
        assert statuses <= {200, 429}
    light = Load(served.url, medium_texts(4, 4_000), pause_s=0.5)
    assert light.run(clients=4, size=1, until=lambda: count_lines(log, GONE) > gone) == {200}
    assert count_lines(log, READY) - count_lines(log, GONE) == 1
