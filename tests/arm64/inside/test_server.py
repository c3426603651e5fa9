"""`vecmill serve` on arm64: it answers eight clients, a stop loses nothing, two processes share a port."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from arm64.references import CORES, Reference
from support.http_server import wait_until
from support.server import LiveServer, live_server

CLIENTS = 8
REQUESTS = 6
PATIENCE_S = 600.0


@contextmanager
def serve(reference: Reference, folder: Path, *arguments: str) -> Iterator[LiveServer]:
    options = (str(reference.model), "--cores", str(CORES), "--no-access-log", *arguments)
    with live_server(folder, arguments=options, timeout_s=PATIENCE_S) as running:
        yield running


@dataclass
class Client:
    """Sends texts one after the other, and keeps what came back."""

    url: str
    reference: Reference
    first: int
    stop: threading.Event = field(default_factory=threading.Event)
    right: int = 0
    refused: bool = False
    wrong: list[str] = field(default_factory=list)

    def run(self, requests: int | None = None) -> None:
        """Send so many requests, or until the server refuses connections."""
        texts, expected = self.reference.texts, self.reference.answers.embeddings
        number = self.first
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self.stop.is_set() and number - self.first != requests:
                index = number % len(texts)
                number += 1
                try:
                    answer = client.post(f"{self.url}/v1/embeddings", json={"input": [texts[index] or " "]})
                except httpx.ConnectError:
                    self.refused = True
                    return
                except httpx.HTTPError as error:
                    self.wrong.append(repr(error))
                    return
                self._check(answer, expected[index])

    def _check(self, answer: httpx.Response, expected: np.ndarray) -> None:
        if answer.status_code != 200:
            self.wrong.append(answer.text)
            return
        row = np.array(answer.json()["data"][0]["embedding"])
        if np.abs(row - expected).max() <= 1e-4:
            self.right += 1
        else:
            self.wrong.append("another embedding")


def clients_of(server: LiveServer, reference: Reference) -> list[Client]:
    return [Client(server.url, reference, first) for first in range(CLIENTS)]


def test_eight_clients_get_the_embeddings_of_x86(bert: Reference, tmp_path: Path) -> None:
    with serve(bert, tmp_path) as server:
        clients = clients_of(server, bert)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda client: client.run(REQUESTS), clients))
    assert [client.wrong for client in clients] == [[]] * CLIENTS
    assert [client.right for client in clients] == [REQUESTS] * CLIENTS


def test_no_accepted_request_is_lost_in_a_stop_under_load(bert: Reference, tmp_path: Path) -> None:
    with serve(bert, tmp_path) as server:
        clients = clients_of(server, bert)
        with ThreadPoolExecutor(CLIENTS) as pool:
            runs = [pool.submit(client.run) for client in clients]
            wait_until(lambda: all(client.right for client in clients), patience_s=PATIENCE_S)
            server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(timeout=PATIENCE_S)
            for each in runs:
                each.result(timeout=PATIENCE_S)
    assert status == 0
    assert [client.wrong for client in clients] == [[]] * CLIENTS
    assert all(client.refused for client in clients)


def test_two_processes_share_a_port_and_stop(bert: Reference, tmp_path: Path) -> None:
    with serve(bert, tmp_path, "--processes", "2") as server:
        wait_until(lambda: processes_of(server) == {"0", "1"}, patience_s=PATIENCE_S)
        clients = clients_of(server, bert)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda client: client.run(REQUESTS), clients))
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(timeout=PATIENCE_S)
    assert status == 0
    assert [client.wrong for client in clients] == [[]] * CLIENTS
    assert [client.right for client in clients] == [REQUESTS] * CLIENTS


def processes_of(server: LiveServer) -> set[str]:
    """Return the numbers of the processes whose model is ready."""
    page = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    lines = [line for line in page.splitlines() if line.startswith("vecmill_model_ready{")]
    return {line.split('process="')[1][0] for line in lines if line.endswith(" 1.0") and "process=" in line}
