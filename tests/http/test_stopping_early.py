"""A server that is told to stop, or has to, before it is ready ends soon and with its reason."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.forked_process import ForkedProcess
from support.http_server import DIM, QUIET, build_service, run_in_thread, serve_in_thread
from support.server import free_port, wait_until_alive
from support.tiny_models import save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.errors import CorruptModel
from vecmill.models import locate_model
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel
from vecmill_server.process import runner as runner_module

TESTS = Path(__file__).parent.parent
START_S = 120.0  # other tests compile models meanwhile
SOON_S = 6.0  # the watchdog would end the process after 10 s


@contextmanager
def starting(*command: str, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is starting."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
    path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
    running = ForkedProcess[str](
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**kept, "PYTHONPATH": path, **extra},
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def slow_server(folder: Path, *options: str, models: tuple[str, ...] = ("slow",)) -> tuple[str, ...]:
    """The command of a server of these models, which are made in `folder`."""
    found = [str(save_tiny_bert(folder / name)) for name in models]
    program = str(TESTS / "http/slow_loading_server.py")
    return (program, "--engine", "onnx", "--cache-dir", str(folder / "cache"), *options, *found)


@pytest.mark.promise("clean-stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_a_model_that_is_loading(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    with starting(*slow_server(tmp_path, "--port", str(port))) as running:
        wait_until_alive(port)
        running.send_signal(number)
        _, log = running.communicate(timeout=SOON_S)
        assert running.returncode == 0
        assert "CRITICAL" not in log


def break_weights(folder: Path) -> None:
    weights = folder / "broken/model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])


def put_file_in_place_of_batches(folder: Path) -> None:
    (folder / "batches").write_text("a file")


@pytest.mark.promise("verified-start")
@pytest.mark.parametrize(
    ("prepare", "option", "reason"),
    [
        (break_weights, ("--strict",), "broken/model.safetensors"),
        (put_file_in_place_of_batches, ("--batch-dir", "batches"), "cannot be used for batches"),
    ],
)
def test_the_reason_is_told_although_another_model_is_loading(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[Path], None],
    option: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = slow_server(tmp_path, "--port", "0", *option, models=("slow", "broken"))
    prepare(tmp_path)
    with starting(*command) as running:
        out, log = running.communicate(timeout=30)
        assert (running.returncode, out) == (2, "")
        assert reason in log.splitlines()[-1]
        assert "keeps the process alive" not in log


def accept_from(running: subprocess.Popen[str], listening: socket.socket) -> socket.socket:
    """The connection of the process, however long it takes to start; fails with its log if it ends."""
    listening.settimeout(0.5)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            return listening.accept()[0]
        assert running.poll() is None, running.communicate()[1]
    raise AssertionError("the process asked for nothing")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_looks_for_its_model_ends_at_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub_of_nobody = {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}",
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
            "TRANSFORMERS_OFFLINE": "0",
            "NO_PROXY": "*",
        }
        command = ("-m", "vecmill", "serve", "owner/name", "--port", "0")
        with starting(*command, **hub_of_nobody) as running, accept_from(running, hub):
            running.send_signal(number)  # while it waits for an answer
            assert running.wait(SOON_S) == 0


class BreaksLater(FakeEngine):
    """Cannot be loaded, once `may_break` is set."""

    def __init__(self) -> None:
        super().__init__(dim=DIM)
        self.may_break = threading.Event()

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        self.may_break.wait()
        raise CorruptModel("It is broken.")


def test_neither_a_stop_nor_a_failed_start_waits_for_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "TICK_S", 600.0)
    with serve_in_thread():
        pass  # the end of the block waits until the server has stopped
    engine = BreaksLater()
    with run_in_thread(build_service(QUIET, [(describe_model(locate_model()), engine)]), wait=False):
        engine.may_break.set()


def test_clients_that_keep_asking_do_not_delay_the_end_of_a_failed_start() -> None:
    engine, answers = BreaksLater(), 0
    service = build_service(replace(QUIET, drain_s=60.0), [(describe_model(locate_model()), engine)])
    with run_in_thread(service, wait=False) as (port, runner):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/readyz").status_code == 503
            engine.may_break.set()
            began = time.monotonic()
            while time.monotonic() - began < SOON_S:
                try:
                    answers += client.get("/readyz").status_code == 503
                except httpx.HTTPError:
                    break
        assert time.monotonic() - began < SOON_S
        assert runner.load_error is not None
    assert answers
