"""A real process: it says when it is ready, drains on SIGTERM, and refuses to start on nonsense."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import httpx
import pytest
from click.testing import CliRunner

from support.forked_process import ForkedProcess, run_process
from support.http_server import MODEL, wait_until
from support.tiny_models import save_tiny_bert
from vecmill.commands.main import main

EMPTY: Mapping[str, str] = {}
COMMAND = (sys.executable, "-m", "vecmill", "serve", "--engine", "fake")


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


@contextmanager
def process(
    *arguments: str, log: int | IO[str] = subprocess.DEVNULL, variables: Mapping[str, str] = EMPTY
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A server on any free port, and the lines that it printed when it was ready."""
    running = ForkedProcess[str](
        [*COMMAND, "--port", "0", "--no-access-log", *arguments],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment(**variables),
    )
    assert running.stdout is not None
    try:
        yield running, [running.stdout.readline().rstrip("\n") for _ in range(2)]
    finally:
        if running.poll() is None:
            running.kill()
        running.wait()
        running.stdout.close()


def address(lines: Sequence[str]) -> str:
    found = re.search(r"http://\S+", lines[0])
    assert found is not None, lines
    return found.group()


def answers_503(url: str) -> bool:
    """Whether a probe is told to go away."""
    return httpx.get(url).status_code == 503


def is_embedded(line: str) -> bool:
    """Whether a line for the shell gets an embedding."""
    answer = subprocess.run([*shlex.split(line), "-s"], capture_output=True, check=True, timeout=20)
    return b'"embedding":[' in answer.stdout


def test_the_printed_line_works_when_pasted_and_sigint_does_not_wait_for_balancers() -> None:
    with process("--lame-duck-s", "60") as (running, lines):
        assert MODEL in lines[0]
        assert is_embedded(lines[1])
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=10) == 0


@pytest.mark.promise("clean-stop", "honest-health")
def test_sigterm_keeps_serving_while_balancers_take_notice_then_ends_with_0() -> None:
    with process("--lame-duck-s", "1.0") as (running, lines), httpx.Client(base_url=address(lines)) as client:
        assert client.get("/readyz").status_code == 200
        running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        wait_until(lambda: client.get("/readyz").status_code == 503, patience_s=0.5)
        answer = client.post("/embeddings", json={"input": "still here"})
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        assert client.get("/livez").status_code == 200
        assert running.wait(timeout=10) == 0
        assert time.monotonic() - began >= 1.0


@pytest.mark.promise("clean-stop")
def test_no_accepted_request_is_lost_in_a_stop_under_load() -> None:
    answers: list[int] = []
    failures: list[Exception] = []
    with process("--lame-duck-s", "0.4") as (running, lines):
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                try:
                    answers.append(
                        httpx.post(f"{address(lines)}/embeddings", json={"input": "a"}).status_code
                    )
                except httpx.ConnectError:
                    return  # the listener is closed
                except httpx.HTTPError as error:
                    failures.append(error)
                    return

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answers) > 20)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=10) == 0
        stop.set()
        for thread in threads:
            thread.join()
    assert set(answers) == {200}
    assert failures == []


def test_a_second_signal_stops_at_once_and_loses_no_line_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--access-log", "--lame-duck-s", "60")
    with log.open("w") as file, process(*options, log=file) as (running, lines):
        running.send_signal(signal.SIGTERM)
        wait_until(partial(answers_503, f"{address(lines)}/readyz"))
        # A line is written after its response, so the last one may come after the signal.
        for number in range(21):
            httpx.get(f"{address(lines)}/livez", headers={"x-request-id": f"request-{number}-"})
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=5) == 1
    text = log.read_text()
    assert [number for number in range(20) if f"request-{number}-" not in text] == []


def test_a_stop_waits_for_balancers_only_where_one_has_asked() -> None:
    for path, is_patient in (("/livez", False), ("/health", True)):
        with process() as (running, lines):
            httpx.get(address(lines) + path)
            running.send_signal(signal.SIGTERM)
            if is_patient:
                wait_until(partial(answers_503, f"{address(lines)}/readyz"))
                running.send_signal(signal.SIGTERM)  # this test does not wait for 5 s
                assert running.wait(timeout=10) == 1
            else:
                assert running.wait(timeout=4) == 0


def test_sighup_stops_as_sigterm_does_and_a_second_one_changes_nothing() -> None:
    with process("--lame-duck-s", "1.0") as (running, lines):
        running.send_signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(f"{address(lines)}/readyz").status_code == 503)
        running.send_signal(signal.SIGHUP)
        assert httpx.post(f"{address(lines)}/embeddings", json={"input": "a"}).status_code == 200
        assert running.wait(timeout=10) == 0


@pytest.mark.promise("clean-stop")
def test_signals_that_mean_something_to_other_servers_are_ignored_and_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file, process(log=file) as (running, lines):
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            running.send_signal(number)
            wait_until(lambda said=f"{number.name} is ignored": said in log.read_text())  # type: ignore[misc]
        assert httpx.post(f"{address(lines)}/embeddings", json={"input": "a"}).status_code == 200
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=10) == 0


@contextmanager
def half_sent_request(lines: list[str]) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection on which the server has read a request's headers, and the rest of the request."""
    body = b'{"input": "hello"}'
    port = int(address(lines).rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        head = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body[:5])
        time.sleep(0.1)  # the server's own time: it has to have seen the headers
        yield connection, body[5:]


@pytest.mark.promise("clean-stop")
def test_a_request_that_is_being_read_still_gets_its_answer() -> None:
    with process("--lame-duck-s", "0") as (running, lines):
        with half_sent_request(lines) as (connection, rest):
            running.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(rest)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert running.wait(timeout=10) == 0


@pytest.mark.promise("clean-stop")
def test_a_request_that_outlives_the_drain_time_is_answered_before_the_process_ends() -> None:
    with process("--lame-duck-s", "0", "--drain-s", "0.2") as (running, lines):
        with half_sent_request(lines) as (connection, rest):
            running.send_signal(signal.SIGTERM)
            time.sleep(0.6)
            connection.sendall(rest)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 503 ")
        assert running.wait(timeout=10) == 1


@pytest.mark.promise("clean-stop")
def test_time_in_which_the_process_is_stopped_is_no_drain_time() -> None:
    with process("--lame-duck-s", "0", "--drain-s", "1.5") as (running, lines):
        with half_sent_request(lines) as (connection, rest):
            running.send_signal(signal.SIGTERM)
            time.sleep(0.1)  # the server has to have seen the signal
            running.send_signal(signal.SIGSTOP)
            time.sleep(2.0)
            running.send_signal(signal.SIGCONT)
            time.sleep(0.1)
            connection.sendall(rest)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert running.wait(timeout=10) == 0


def test_the_environment_sets_options_and_the_prefix_is_in_the_printed_line() -> None:
    settings = {"VECMILL_URL_PREFIX": "/api", "VECMILL_API_KEY": "k1 k2", "VECMILL_MAX_INPUTS": "3"}
    with process(variables=settings) as (_, lines):
        assert lines[0].endswith("/api")
        assert "authorization: Bearer YOUR_KEY" in lines[1]
        assert is_embedded(lines[1].replace("YOUR_KEY", "k2"))
        many = httpx.post(
            f"{address(lines)}/embeddings", json={"input": ["a"] * 4}, headers={"api-key": "k1"}
        )
        assert many.status_code == 400


def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    path = tmp_path / "a socket"
    with process("--uds", str(path), "--lame-duck-s", "0") as (running, lines):
        assert is_embedded(lines[1])
        assert "Another process listens on" in refused_here("--uds", str(path))
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=10) == 0
    assert not path.exists()


def refused(*arguments: str, model: str | None = None) -> str:
    """What a process that does not start to serve says, in one line, ending with status 2."""
    line = [*COMMAND, *arguments, *([model] if model else [])]
    ended = run_process(line, env=environment())
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    # Other models may still be loading beside it, and log what they do.
    return [line for line in ended.stderr.strip().splitlines() if " INFO " not in line][-1]


def refused_here(*arguments: str) -> str:
    """What the command says in this process, where it must not start to serve."""
    given = ["serve", "--engine", "fake", *arguments]
    ended = CliRunner().invoke(main, given, prog_name="vecmill")
    assert (ended.exit_code, ended.stdout) == (2, "")
    return ended.stderr.splitlines()[-1]


@pytest.mark.promise("verified-start")
def test_what_a_start_finds_out_late_is_said_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "Choose another with --port" in refused("--port", str(taken.getsockname()[1]))
    assert "nowhere" in refused("--port", "0", model="/nowhere")
    assert "no engine named" in refused("--port", "0", "--engine", "steam")


@pytest.mark.promise("verified-start")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--port 70000", "port must be between"),
        ("--max-queue-texts 0", "--max-queue-texts must be at least 1"),
        ("all-MiniLM-L6-v2 a", "no directory 'a'"),
        ("all-MiniLM-L6-v2 all-MiniLM-L6-v2", "Two models have the name"),
        ("--task sing", "--task 'sing'"),
        ("--task b=embed", "--task names 'b'"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    for name in os.environ:
        if name.startswith("VECMILL_"):
            monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as taken:  # a server that starts nevertheless ends too
        assert sentence in refused_here("--port", str(taken.getsockname()[1]), *arguments.split())


def save_broken_models(folder: Path) -> tuple[Path, Path]:
    """Two models that cannot be loaded: the weights of one and the settings of the other are cut off."""
    found = save_tiny_bert(folder / "broken-weights"), save_tiny_bert(folder / "broken-settings")
    for directory, name in zip(found, ("model.safetensors", "config.json"), strict=True):
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[: len(content) // 2])
    return found


def test_with_strict_one_model_that_cannot_be_loaded_stops_all(tmp_path: Path, kept_models: Path) -> None:
    broken, unreadable = save_broken_models(tmp_path)
    options = ("--strict", "--port", "0", "--engine", "onnx", "--cache-dir", str(kept_models))
    whole = save_tiny_bert(tmp_path / "whole")
    assert "broken-weights/model.safetensors" in refused(*options, str(whole), str(broken))
    assert "broken-weights/model.safetensors" in refused(*options, str(broken), str(whole))
    assert "broken-settings" in refused(*options, str(whole), str(unreadable))


def test_one_model_that_cannot_be_loaded_leaves_the_others_and_the_last_one_stops_all(
    tmp_path: Path, kept_models: Path
) -> None:
    broken, unreadable = save_broken_models(tmp_path)
    options = ("--engine", "onnx", "--cache-dir", str(kept_models))
    whole = save_tiny_bert(tmp_path / "whole")
    with process(*options, str(unreadable), str(whole), str(broken)) as (_, lines):
        assert lines[0].startswith("vecmill serves whole on ")
        answer = httpx.post(f"{address(lines)}/embeddings", json={"input": "a", "model": "whole"})
        assert answer.status_code == 200
        # The model that could not be read may be the one that this request means.
        answer = httpx.post(f"{address(lines)}/embeddings", json={"input": "a"})
        assert answer.status_code == 503
        assert "`broken-settings`" in answer.json()["message"]
        states = [model["state"] for model in httpx.get(f"{address(lines)}/readyz").json()["models"]]
        assert states == ["failed", "ready", "failed"]
    assert "broken-weights/model.safetensors" in refused("--port", "0", *options, model=str(broken))
    assert "broken-settings" in refused("--port", "0", *options, str(unreadable), str(broken))
