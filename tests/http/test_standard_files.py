"""A server that is started without standard files writes its log to nobody, and to no client."""

import os
import signal
import socket
import subprocess
import sys

from support.server import free_port, wait_until_alive

REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
CLIENTS = 20


def close_standard_files() -> None:
    for fd in range(3):
        os.close(fd)


def test_no_log_line_reaches_a_client() -> None:
    port = free_port()
    command = [sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--lame-duck-s", "0"]
    running = subprocess.Popen([*command, "--port", str(port)], preexec_fn=close_standard_files)
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
        # Only these three: the server may close one of the clients' sockets while a list is read.
        assert {os.readlink(f"/proc/{running.pid}/fd/{fd}") for fd in range(3)} == {os.devnull}
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 0
    finally:
        running.kill()
        running.wait()
