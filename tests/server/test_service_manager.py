"""What systemd hears from a server: READY=1, STOPPING=1, and WATCHDOG=1 while the event loop runs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.forked_process import ForkedProcess
from support.server import free_port
from vecmill.hardware.cores import available_cores
from vecmill_server.process import service_manager
from vecmill_server.process.service_manager import ALIVE, READY, STOPPING, find_manager

START_S = 60.0


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def manager_socket(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(START_S)
        yield listening


def heard(listening: socket.socket) -> list[bytes]:
    """Return the messages that have arrived."""
    messages = []
    listening.setblocking(False)
    while True:
        try:
            messages.append(listening.recv(256))
        except BlockingIOError:
            return messages


def variables(listening: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(listening.getsockname()), **more}


def test_readiness_is_told_and_a_stop_only_once(manager_socket: socket.socket) -> None:
    manager = find_manager(variables(manager_socket))
    manager.ready()
    manager.stopping()
    manager.stopping()
    assert heard(manager_socket) == [READY, STOPPING]


def test_a_sign_of_life_is_given_four_times_in_the_longest_silence(manager_socket: socket.socket) -> None:
    clock = ManualClock()
    manager = find_manager(variables(manager_socket, WATCHDOG_USEC="60000000"), clock)
    manager.tick()
    assert heard(manager_socket) == [ALIVE]
    clock.now += 14.9
    manager.tick()
    assert heard(manager_socket) == []
    clock.now += 0.1
    manager.tick()
    manager.tick()
    assert heard(manager_socket) == [ALIVE]


def test_an_event_loop_that_hangs_gives_no_sign(
    manager_socket: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_manager, "LOOK_S", 0)
    clock = ManualClock()
    manager = find_manager(variables(manager_socket, WATCHDOG_USEC="60000000"), clock)

    async def serve() -> None:
        signs = asyncio.create_task(manager.give_signs_of_life())
        await asyncio.sleep(0)
        assert heard(manager_socket) == [ALIVE]
        clock.now += 600  # in a call that does not return to the loop
        assert heard(manager_socket) == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard(manager_socket) == [ALIVE]
        signs.cancel()

    asyncio.run(serve())


@pytest.mark.parametrize(
    "more",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid() + 1)}],
    ids=["no limit", "a limit of 0", "the limit of another process"],
)
def test_without_a_limit_on_silence_no_sign_is_given(
    manager_socket: socket.socket, more: dict[str, str]
) -> None:
    find_manager(variables(manager_socket, **more)).tick()
    assert heard(manager_socket) == []


@pytest.mark.linux
def test_the_socket_may_be_abstract() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")
        name = listening.getsockname().decode()
        find_manager({"NOTIFY_SOCKET": f"@{name[1:]}"}).ready()
        assert heard(listening) == [READY]


def test_a_manager_that_does_not_read_stops_nobody(manager_socket: socket.socket) -> None:
    manager = find_manager(variables(manager_socket))
    for _ in range(10_000):  # more than the queue of the socket holds
        manager.ready()
    assert 0 < len(heard(manager_socket)) < 10_000
    Path(manager_socket.getsockname()).unlink()
    manager.ready()
    find_manager({}).ready()


@contextmanager
def server(listening: socket.socket, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that systemd has started, with a limit of 0.4 s on its silence."""
    command = [sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--port", str(free_port())]
    environment = os.environ | variables(listening, WATCHDOG_USEC="400000")
    with ForkedProcess[bytes](
        [*command, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_other(listening: socket.socket) -> bytes:
    """Wait for the next message that is no sign of life."""
    listening.settimeout(START_S)
    while (message := listening.recv(256)) == ALIVE:
        pass
    return message


def sender(listening: socket.socket) -> int:
    """Wait for the next sign of life, and return the process that sent it."""
    listening.settimeout(START_S)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    while True:
        message, parts, _, _ = listening.recvmsg(256, 256)
        if message == ALIVE and parts:
            return int.from_bytes(parts[0][2][:4], sys.byteorder)


@pytest.mark.linux
@pytest.mark.parametrize(
    "processes",
    [
        "1",
        pytest.param("2", marks=pytest.mark.skipif(available_cores() < 2, reason="needs two cores")),
    ],
)
def test_a_server_tells_of_its_start_its_life_and_its_stop_from_its_main_process(
    manager_socket: socket.socket, processes: str
) -> None:
    with server(manager_socket, "--processes", processes) as process:
        assert next_other(manager_socket) == READY
        assert {sender(manager_socket) for _ in range(3)} == {process.pid}
        process.send_signal(signal.SIGTERM)
        assert next_other(manager_socket) == STOPPING
        assert process.wait(START_S) == 0
    assert set(heard(manager_socket)) <= {ALIVE}


def test_a_server_that_cannot_start_never_says_that_it_is_ready(
    manager_socket: socket.socket, tmp_path: Path
) -> None:
    with server(manager_socket, str(tmp_path / "no-model")) as process:
        assert process.wait(START_S) == 2
    assert READY not in heard(manager_socket)
