"""A server that is started without standard files writes its log to nobody, and to no client."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.server import free_port, wait_until_alive

REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
CLIENTS = 20
# The second opens a file under the number of a closed standard file before vecmill runs. On Python 3.14
# libffi does so at an import.
OPENS_EARLY = "import os; early = os.open('/dev/zero', 0); from vecmill.commands.main import main; main()"
PROGRAMS = {"vecmill": ["-m", "vecmill"], "a program that opens a file first": ["-c", OPENS_EARLY]}


def close_standard_files() -> None:
    for fd in range(3):
        os.close(fd)


def close_standard_error() -> None:
    os.close(2)


@pytest.mark.parametrize(
    ("close", "program"),
    [
        (close_standard_files, "a program that opens a file first"),
        (close_standard_error, "vecmill"),
        pytest.param(close_standard_files, "vecmill", marks=pytest.mark.full),
        pytest.param(close_standard_error, "a program that opens a file first", marks=pytest.mark.full),
    ],
)
def test_no_log_line_reaches_a_client(close: Callable[[], None], program: str) -> None:
    port = free_port()
    command = [sys.executable, *PROGRAMS[program], "serve", "--engine", "fake", "--lame-duck-s", "0"]
    running = subprocess.Popen([*command, "--port", str(port)], preexec_fn=close)
    try:
        wait_until_alive(port)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(CLIENTS)]
        for _ in range(3):
            for client in clients:
                client.sendall(REQUEST)
                received = b""
                while not received.endswith(b"}"):
                    received += client.recv(65_536)
                assert received.startswith(b"HTTP/1.1 200 ")
                assert received.count(b"HTTP/1.1") == 1
        for client in clients:
            client.close()
        # Only these: the server may close one of the clients' sockets while a list is read.
        closed = range(3) if close is close_standard_files else [2]
        assert {os.readlink(f"/proc/{running.pid}/fd/{fd}") for fd in closed} == {os.devnull}
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 0
    finally:
        running.kill()
        running.wait()
