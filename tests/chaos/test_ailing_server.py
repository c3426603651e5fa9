"""A process that cannot answer any more ends by itself. A process that was only stopped goes on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.forked_process import ForkedProcess
from support.http_server import wait_until
from support.server import free_port, wait_until_alive
from support.tiny_models import save_tiny_bert

TESTS = Path(__file__).parent.parent
TICK_S = 0.03  # instead of 0.5: the watchdog waits for 0.6 s instead of 10
PATIENCE_TICKS = 30  # more than that of the watchdog
PACES = [TICK_S, pytest.param(0.5, marks=pytest.mark.full)]


@contextmanager
def ailing_server(
    folder: Path, *options: str, tick_s: float = TICK_S
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with a watchdog, and its URL."""
    port = free_port()
    command = [sys.executable, str(TESTS / "chaos/ailing_server.py"), str(tick_s), "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    running = ForkedProcess[str](
        [*command, "--engine", "fake", "--no-access-log", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        wait_until_alive(port)
        assert running.stdout is not None
        running.stdout.readline()
        yield running, f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.communicate()


def ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status of a process that ends by itself, and its log."""
    _, log = running.communicate(timeout=60)
    return running.returncode, log


@pytest.mark.promise("lost-lane-noticed", "honest-health")
@pytest.mark.parametrize("tick_s", PACES)
def test_a_process_that_was_stopped_goes_on_and_a_blocked_event_loop_ends_it(
    tmp_path: Path, tick_s: float
) -> None:
    with ailing_server(tmp_path, tick_s=tick_s) as (running, url):
        running.send_signal(signal.SIGSTOP)
        time.sleep(PATIENCE_TICKS * tick_s)
        running.send_signal(signal.SIGCONT)
        assert httpx.post(f"{url}/embeddings", json={"input": "a"}).status_code == 200
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(PATIENCE_TICKS * tick_s)
        assert httpx.get(f"{url}/readyz").status_code == 200

        running.send_signal(signal.SIGUSR1)
        status, log = ended(running)
        assert status == 70
        assert "The event loop is blocked." in log
        assert "in block" in log


@pytest.mark.linux
@pytest.mark.promise("lost-lane-noticed")
@pytest.mark.parametrize("tick_s", PACES)
def test_a_frozen_interpreter_ends_the_process(tmp_path: Path, tick_s: float) -> None:
    with ailing_server(tmp_path, tick_s=tick_s) as (running, _):
        running.send_signal(signal.SIGUSR2)
        status, log = ended(running)
        assert status == -signal.SIGVTALRM
        assert "in freeze" in log


@pytest.mark.promise("lost-lane-noticed")
def test_a_server_goes_on_while_one_model_has_workers_and_then_answers_what_waits_and_ends(
    tmp_path: Path,
) -> None:
    models = [str(save_tiny_bert(tmp_path / name)) for name in ("first", "second")]
    with ailing_server(tmp_path, *models) as (running, url), httpx.Client(base_url=url) as client:
        (tmp_path / "lost-first").touch()
        wait_until(lambda: client.get("/readyz").json()["models"][0]["state"] == "lost", patience_s=1.0)
        answer = client.post("/embeddings", json={"input": "a", "model": "first"})
        assert answer.status_code == 503
        assert "`first`" in answer.json()["error"]["message"]
        assert client.post("/embeddings", json={"input": "a", "model": "second"}).status_code == 200
        assert client.get("/readyz").status_code == 200
        time.sleep(3 * TICK_S)
        assert running.poll() is None

        body = b'{"input": "a", "model": "second"}'
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10) as connection:
            head = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            connection.sendall(head)
            time.sleep(0.1)  # the server has to have seen the headers
            (tmp_path / "lost-second").touch()
            connection.sendall(body)
            answered = connection.recv(65_536)
        assert answered.startswith(b"HTTP/1.1 503 ")
        assert b"`second`" in answered
        status, log = ended(running)
        assert status == 70
        assert "The workers of the models are lost." in log
