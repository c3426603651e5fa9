"""A log that nobody reads stops nothing: neither requests, nor probes, nor the end of the process."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.forked_process import ForkedProcess
from support.http_server import wait_until
from support.server import free_port, wait_until_alive

COMMAND = (sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--lame-duck-s", "0")
REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
REQUESTS = 5000  # a pipe holds the access log of 423


@contextmanager
def server_with_blocked_output(*, is_full: bool) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A server whose standard output and error are one pipe that nobody reads, its port, and the pipe."""
    reader, writer = os.pipe()
    if is_full:
        os.set_blocking(writer, False)
        while True:
            try:
                os.write(writer, b"x" * 1000 + b"\n")
            except BlockingIOError:
                break
        os.set_blocking(writer, True)
    port = free_port()
    running = ForkedProcess[bytes]([*COMMAND, "--port", str(port)], stdout=writer, stderr=writer)
    os.close(writer)
    try:
        wait_until_alive(port)
        yield running, port, reader
    finally:
        running.kill()
        running.wait()
        os.close(reader)


def answered(port: int, requests: int) -> int:
    """Send requests on one connection, 50 at a time, and return the number of answers with 200."""
    answers = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(requests // 50):
            connection.sendall(REQUEST * 50)
            received = b""
            while received.count(b'"status":"alive"') < 50:
                received += connection.recv(1 << 20)
            answers += received.count(b"HTTP/1.1 200 ")
    return answers


def test_requests_are_answered_and_a_stop_takes_a_second_while_nobody_reads_the_log() -> None:
    with server_with_blocked_output(is_full=False) as (running, port, _):
        assert answered(port, REQUESTS) == REQUESTS
        running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert running.wait(timeout=10) == 0
        assert time.monotonic() - began < 4


def test_with_a_pipe_that_is_full_from_the_start_dropped_lines_are_counted_and_told() -> None:
    with server_with_blocked_output(is_full=True) as (_, port, reader):
        assert answered(port, 12_000) == 12_000
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            with connection.makefile("rb") as answer:
                metrics = answer.read()
        dropped = re.search(rb"vecmill_log_lines_dropped_total ([0-9.e+]+)", metrics)
        assert dropped is not None
        assert float(dropped[1]) > 1000
        os.set_blocking(reader, False)
        log = bytearray()

        def is_told() -> bool:
            try:
                log.extend(os.read(reader, 1 << 20))
            except BlockingIOError:
                return False
            return b"log lines were dropped" in log

        wait_until(is_told)
