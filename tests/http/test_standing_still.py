"""A server whose process stood still goes on as before: a closed lid, a paused machine, a debugger."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.http_server import wait_until
from support.server import LiveServer, live_server

CLIENTS = 3
PATIENCE_S = 60.0


class Load:
    """Clients that send requests until the block ends. `answers` are the statuses of the answers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(CLIENTS)]
        self.answers: list[int] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _send(self, number: int) -> None:
        sent = 0
        while not self._ends.is_set():
            sent += 1
            texts = [f"client {number} text {sent} {part} {'word ' * 60}" for part in range(4)]
            self.answers.append(embed(self._url, texts))


def embed(url: str, texts: list[str]) -> int:
    """The status of the answer to a request of `texts`."""
    body = json.dumps({"input": texts}).encode()
    headers = {"content-type": "application/json"}
    try:
        request = urllib.request.Request(f"{url}/v1/embeddings", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def stop(server: LiveServer, seconds: float) -> None:
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(server.process.pid, signal.SIGCONT)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
@pytest.mark.parametrize(
    ("hang_s", "stopped_s"), [(2.0, 3.0), pytest.param(30.0, 35.0, marks=pytest.mark.full)]
)
def test_a_stopped_process_goes_on_with_all_lanes(
    tmp_path: Path, kept_models: Path, hang_s: float, stopped_s: float
) -> None:
    arguments = ["--hang-s", str(hang_s)]
    with live_server(tmp_path, arguments=arguments, cache=kept_models) as server, Load(server.url) as load:
        wait_until(lambda: len(load.answers) > CLIENTS, patience_s=PATIENCE_S)
        stop(server, stopped_s)
        load.answers.clear()
        wait_until(lambda: len(load.answers) > 3 * CLIENTS, patience_s=PATIENCE_S)
        assert set(load.answers[-CLIENTS:]) == {200}
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=10) as ready:
            assert ready.status == 200
    assert " is hung" not in server.log.read_text()
