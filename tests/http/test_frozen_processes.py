"""A frozen process of several (SIGSTOP) is killed and replaced, and does not keep the server from ending."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from support.forked_process import ForkedProcess
from support.http_server import receive_all, wait_until
from support.server import free_port
from vecmill.hardware.cores import available_cores
from vecmill_server.process import ExitStatus
from vecmill_server.process.supervisor import SILENT_TICKS, STOP_GRACE_S, TICK_S

PROGRAM = Path(__file__).parent / "hasty_supervisor.py"
OPTIONS = ("--engine", "fake", "--no-access-log", "--processes", "2", "--lame-duck-s", "0")
PATIENCE_S = 90.0

# Each test runs with short times, and at full size with those of the server.
at_both_sizes = pytest.mark.parametrize("tick_s", [0.1, pytest.param(TICK_S, marks=pytest.mark.full)])

pytestmark = [
    pytest.mark.skipif(available_cores() < 2, reason="two processes need two cores"),
    pytest.mark.linux,
]


class Server:
    """A server of two processes, and its log."""

    def __init__(self, running: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.running = running
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def pids(self) -> list[int]:
        """The processes that serve, in the order of their starts."""
        parent = self.running.pid
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def embed(self) -> int:
        """The status of the answer to a client with a connection of its own."""
        url = f"http://127.0.0.1:{self.port}/v1/embeddings"
        return httpx.post(url, json={"input": "a text"}, timeout=PATIENCE_S).status_code

    def ready(self) -> set[str]:
        """The processes whose models are ready, by the metrics."""
        page = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_S).text
        return set(re.findall(r'^vecmill_model_ready\{process="(\d)".*\} 1', page, re.MULTILINE))

    def wait_until_two_serve(self) -> None:
        """Return when the supervisor knows that two processes are ready.

        A process tells the supervisor a turn or two of its event loop after its models are ready. The second
        page is of a later turn.
        """
        for _ in range(2):
            wait_until(lambda: len(self.ready()) == 2, patience_s=PATIENCE_S)


@contextmanager
def two_processes(folder: Path, *constants: str, options: Sequence[str] = ()) -> Iterator[Server]:
    """Serve until the block ends, with these constants of the supervisor."""
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, str(PROGRAM), *constants, *OPTIONS, "--port", str(port), *options]
    with log.open("wb") as output:
        running = ForkedProcess[bytes](
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    server = Server(running, port, log)
    try:
        wait_until(lambda: str(port) in server.log, patience_s=PATIENCE_S)
        server.wait_until_two_serve()
        yield server
    finally:
        pids = server.pids if running.poll() is None else []
        for pid in (running.pid, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()


def ask(connection: socket.socket) -> bytes:
    """The beginning of the answer to a probe on a connection that stays open."""
    connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    return connection.recv(65_536)


def accept_by(server: Server, pid: int) -> socket.socket:
    """A connection that this process has accepted: the other one is stopped meanwhile."""
    other = next(one for one in server.pids if one != pid)
    os.kill(other, signal.SIGSTOP)
    try:
        connection = server.connect()
        assert ask(connection).startswith(b"HTTP/1.1 200")
    finally:
        os.kill(other, signal.SIGCONT)
    return connection


def end_of(connection: socket.socket) -> bytes:
    """What arrives until the connection ends."""
    with suppress(ConnectionResetError):
        return receive_all(connection)
    return b""


@at_both_sizes
def test_a_frozen_process_is_killed_named_and_replaced(tmp_path: Path, tick_s: float) -> None:
    with two_processes(tmp_path, f"TICK_S={tick_s}") as server:
        frozen, other = server.pids
        with accept_by(server, frozen) as waiting:
            os.kill(frozen, signal.SIGSTOP)
            waiting.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert {server.embed() for _ in range(5)} == {200}  # by the other process
            assert end_of(waiting) == b""  # and the request ends
        wait_until(lambda: len(server.pids) == 2 and frozen not in server.pids, patience_s=PATIENCE_S)
        server.wait_until_two_serve()
        silent_s = f"{SILENT_TICKS * tick_s:g}"
        assert (
            f"server process 0 (pid {frozen}) has not answered for {silent_s} s; it is killed" in server.log
        )
        assert f"server process 0 (pid {frozen}) ended by signal 9; another process" in server.log
        assert f"pid {other}" not in server.log
        # Its replacement freezes too, and is replaced after a longer pause.
        again = next(pid for pid in server.pids if pid != other)
        os.kill(again, signal.SIGSTOP)
        wait_until(lambda: f"(pid {again}) has not answered" in server.log, patience_s=PATIENCE_S)
        server.wait_until_two_serve()
        assert re.search(rf"\(pid {again}\) ended by signal 9; another .* in 2 s", server.log)
        server.running.terminate()
        assert server.running.wait(PATIENCE_S) == ExitStatus.CLEAN


@pytest.mark.parametrize(("tick_s", "rounds"), [(0.1, 1), pytest.param(TICK_S, 3, marks=pytest.mark.full)])
def test_a_server_that_stood_still_kills_nobody(tmp_path: Path, tick_s: float, rounds: int) -> None:
    limit_s = SILENT_TICKS * tick_s
    with two_processes(tmp_path, f"TICK_S={tick_s}") as server:
        pids = server.pids
        supervisor = server.running.pid
        for stopped in ([supervisor, *pids], [supervisor], [*pids, supervisor])[:rounds]:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5 * limit_s)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.5 * limit_s)
            assert server.embed() == 200
        assert server.pids == pids
        assert "has not answered" not in server.log


@at_both_sizes
def test_a_frozen_process_does_not_keep_the_server_from_ending(tmp_path: Path, tick_s: float) -> None:
    with two_processes(tmp_path, f"TICK_S={tick_s}") as server:
        frozen = server.pids[1]
        os.kill(frozen, signal.SIGSTOP)
        began = time.monotonic()
        server.running.terminate()
        assert server.running.wait(PATIENCE_S) == ExitStatus.LOST
        assert time.monotonic() - began <= SILENT_TICKS * tick_s + STOP_GRACE_S
        assert f"(pid {frozen}) has not answered" in server.log


def test_a_stop_ends_when_its_time_is_over(tmp_path: Path) -> None:
    constants = ("TICK_S=0.1", "STOP_GRACE_S=0.5")
    with two_processes(tmp_path, *constants, options=("--drain-s", "0.2")) as server:
        for pid in server.pids:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        server.running.terminate()
        assert server.running.wait(PATIENCE_S) == ExitStatus.LOST
        assert time.monotonic() - began < 0.9 * SILENT_TICKS * 0.1  # sooner than for its silence
        assert server.log.count("has not ended in time; it is killed") == 2


def test_a_second_signal_ends_frozen_processes_too(tmp_path: Path) -> None:
    with two_processes(tmp_path, "FORCED_S=0.5", options=("--lame-duck-s", "60")) as server:
        for pid in server.pids:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        server.running.terminate()
        wait_until(lambda: not is_listening(server.running.pid))
        server.running.terminate()
        assert server.running.wait(PATIENCE_S) == ExitStatus.LOST
        assert time.monotonic() - began < SILENT_TICKS * TICK_S / 2


def test_a_frozen_process_ends_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with two_processes(tmp_path) as server:
        pids = server.pids
        os.kill(pids[0], signal.SIGSTOP)
        server.running.kill()
        wait_until(lambda: not any(is_running(pid) for pid in pids), patience_s=PATIENCE_S)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def is_listening(pid: int) -> bool:
    """Whether the supervisor has its copy of the listening socket still, which it closes to stop."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    listening = Path("/proc/net/tcp").read_text("ascii").splitlines()
    inodes = {f"socket:[{line.split()[9]}]" for line in listening[1:] if line.split()[3] == "0A"}
    return bool(inodes.intersection(links))
