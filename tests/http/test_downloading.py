"""While a model of a hub is downloaded the port is open, a stop is quick, and the terminal shows one bar."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.fake_hub import FakeHub, Repository, run_fake_hub
from support.forked_process import ForkedProcess, run_process
from support.http_server import wait_until
from support.server import free_port
from support.tiny_models import TinyBert, save_tiny_bert

NAME = "owner/tiny-model"
LARGE = "large.txt"  # downloaded with the vocabularies


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    paths = [path for path in directory.rglob("*") if path.is_file()]
    files = {str(path.relative_to(directory)): path.read_bytes() for path in paths}
    with run_fake_hub() as running:
        running.repositories[NAME] = Repository({**files, LARGE: os.urandom(20 * 2**20)})
        yield running


def environment(hub: FakeHub, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VECMILL_", "HF_"))}
    return {
        **kept,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home / "hub"),
        "NO_PROXY": "127.0.0.1",
        "VECMILL_CACHE_DIR": str(home / "cache"),
        "PYTHONUNBUFFERED": "1",
    }


def command(port: int, *arguments: str) -> list[str]:
    options = ("--engine", "fake", "--port", str(port))
    return [sys.executable, "-m", "vecmill", "serve", *arguments, *options]


def probe(port: int, path: str) -> httpx.Response | None:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}{path}")
    return None


def status(port: int, path: str) -> int | None:
    answer = probe(port, path)
    return None if answer is None else answer.status_code


@pytest.mark.promise("honest-health")
def test_probes_are_answered_and_a_stop_is_quick_while_a_model_is_downloaded(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.stalled |= {LARGE, "tokenizer.json"}
    port = free_port()
    with ForkedProcess[str](
        command(port, NAME),
        env=environment(hub, tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            wait_until(lambda: "tokenizer.json" in {path for path, _ in hub.served}, patience_s=60)
            assert status(port, "/livez") == 200
            answer = probe(port, "/readyz")
            assert answer is not None
            assert (answer.status_code, answer.json()["status"]) == (503, "loading")
            assert answer.json()["models"] == [{"name": NAME, "state": "loading", "reason": None}]
            body = {"input": "a", "model": NAME}
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/embeddings", json=body)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=5) == 0
        finally:
            running.kill()
        assert running.stdout is not None
        assert running.stdout.read() == ""


def test_a_model_that_is_downloaded_is_served_with_the_others(hub: FakeHub, tmp_path: Path) -> None:
    port = free_port()
    with ForkedProcess[str](
        command(port, "all-MiniLM-L6-v2", NAME),
        env=environment(hub, tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().startswith(f"vecmill serves all-MiniLM-L6-v2, {NAME} on ")
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/embeddings", json={"input": "a", "model": NAME})
            assert answer.status_code == 200
        finally:
            running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        lines = running.stderr.read().splitlines()
    assert any(f"downloading {NAME}: 100%" in line for line in lines)
    assert not [line for line in lines if "HTTP Request" in line or "httpx" in line or "%|" in line]


def test_a_terminal_shows_one_bar_and_no_requests_of_the_client(hub: FakeHub, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    port = free_port()
    with ForkedProcess[bytes](
        command(port, NAME), env=environment(hub, tmp_path), stdin=theirs, stdout=theirs, stderr=theirs
    ) as running:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other side is closed
            while part := os.read(ours, 65_536):
                shown += part
                if b"curl" in shown:
                    running.send_signal(signal.SIGINT)
    os.close(ours)
    lines = [line for line in re.split(r"[\r\n]+", shown.decode()) if line.strip()]
    bars = [line for line in lines if "%|" in line]
    assert bars[-1].startswith(f"{NAME}: 100%|")
    assert {line.partition(":")[0] for line in bars} == {NAME}
    assert not [line for line in lines if "HTTP" in line or "Fetching" in line]
    assert lines.index(bars[-1]) < next(place for place, line in enumerate(lines) if "vecmill serves" in line)


def test_a_model_that_cannot_be_downloaded_ends_the_start(hub: FakeHub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path) | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    done = run_process(command(free_port(), NAME), env=variables)
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert last == (
        f"Error: {NAME} is not in the cache in full, and the hub cannot be asked for it: 127.0.0.1 refuses "
        "connections. Check HF_ENDPOINT and HTTPS_PROXY."
    )
    assert "Traceback" not in done.stderr
