"""A process takes the listening socket that systemd or another supervisor passes to it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from support.forked_process import ForkedProcess

COMMAND = (sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--no-access-log")

# Starts a command as systemd does, with the socket as file descriptor 3, and as nohup does.
LAUNCH = """
import os, signal, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.promise("clean-stop")
def test_a_socket_as_systemd_passes_it_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        fd = listener.fileno()
        running = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(fd), *COMMAND],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(fd,),
        )
        try:
            # The connection waits in the queue until the model is loaded.
            assert httpx.get(f"{url}/readyz", timeout=30).json()["status"] == "ready"
            assert running.stdout is not None
            assert url in running.stdout.readline()
            running.send_signal(signal.SIGHUP)  # which is ignored, as under nohup
            assert httpx.post(f"{url}/embeddings", json={"input": "a"}).status_code == 200
            running.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert running.wait(10) == 0
            assert time.monotonic() - began < 4
            # The socket is open, and the next process answers.
            with socket.create_connection(listener.getsockname(), timeout=1):
                pass
        finally:
            running.kill()
            running.communicate()


@contextmanager
def server_on(listener: socket.socket) -> Iterator[subprocess.Popen[str]]:
    """A server that inherits a socket."""
    fd = listener.fileno()
    running = ForkedProcess[str](
        [*COMMAND, "--fd", str(fd)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=(fd,)
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_names_are_checked_by_the_address_of_the_socket() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, server_on(listener):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/embeddings"
        answer = httpx.post(url, json={"input": "a"}, headers={"host": "embed.example.com"}, timeout=30)
        assert answer.status_code == 200


@pytest.mark.linux
def test_an_abstract_socket_is_served() -> None:
    name = f"vecmill-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        with server_on(listener) as running:
            assert running.stdout is not None
            printed = running.stdout.readline() + running.stdout.readline()
            assert f"on the socket @{name}\n" in printed
            assert f"--abstract-unix-socket {name} " in printed
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"\0{name}")
                client.sendall(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200 ")
            running.send_signal(signal.SIGINT)
            assert running.wait(10) == 0
