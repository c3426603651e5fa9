"""A connection goes on after a response if both sides know where the next request begins, else it ends."""

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.http_server import (
    QUIET,
    HttpServer,
    hanging_engine,
    receive_all,
    send_all,
    serve_in_thread,
    wait_until,
)
from vecmill.config import BatchConfig, MillConfig
from vecmill_server.http1.protocol import HttpConnection

BODY = b'{"input": "hello"}'
HEAD = b"POST /embeddings HTTP/1.1\r\nhost: x\r\n"
LENGTH = b"content-length: 18\r\n\r\n"
PROBE = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSE = b"\r\nconnection: close\r\n"


@pytest.fixture
def halting() -> Iterator[HttpServer]:
    """One lane, whose second call hangs until `engine.released` is set."""
    config = MillConfig(cores=1, batch=BatchConfig(max_batch_tokens=8))
    with serve_in_thread(config=config, engine=hanging_engine(1)) as server:
        yield server


def only_connection(server: HttpServer) -> HttpConnection:
    (connection,) = server.runner.server_state.connections
    assert isinstance(connection, HttpConnection)
    return connection


# ---------------------------------------------------------------- bodies that are not read


def test_a_refusal_instead_of_100_continue_ends_the_connection(server: HttpServer) -> None:
    """The client may leave the body out, and the server would read the next request as the body."""
    with server.connect() as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n" + LENGTH)
        answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert CLOSE in answer
        send_all(connection, PROBE)
        assert receive_all(connection) == b""


@pytest.mark.parametrize("expect", [b"100-continue", b"100-Continue \t"])
def test_after_100_continue_the_connection_goes_on(server: HttpServer, expect: bytes) -> None:
    with server.connect(timeout_s=5) as connection:
        connection.sendall(HEAD + b"expect: " + expect + b"\r\n" + LENGTH)
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert CLOSE not in answer
        connection.sendall(PROBE)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_refusal_is_not_lost_to_what_the_client_sends_after_it(caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(QUIET, max_body_bytes=1_024)
    with serve_in_thread(settings) as server, server.connect() as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n800\r\n" + b" " * 0x800 + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
        connection.sendall(b"not a chunk\r\n")
        assert receive_all(connection) == b""  # and no reset
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_body_of_a_refused_request_is_not_kept() -> None:
    with serve_in_thread() as server, server.connect() as connection:
        sent = b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n"
        connection.sendall(sent + b" " * 30_000)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404 ")
        cycle = only_connection(server)._cycle
        assert cycle is not None
        assert cycle.unread_bytes == 0
        connection.sendall(b" " * 30_000)
        wait_until(lambda: only_connection(server)._cycle is None)


# ---------------------------------------------------------------- clients that closed their sending side


def test_each_request_of_a_client_that_is_gone_is_found_out(halting: HttpServer) -> None:
    with halting.connect() as connection:
        connection.sendall(HEAD + LENGTH + BODY + HEAD + LENGTH + BODY.replace(b"hello", b"adieu"))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: len(halting.engine.calls) == 2)
    wait_until(lambda: not halting.runner.server_state.connections, patience_s=5)


def test_a_request_without_its_end_does_not_keep_a_connection_whose_client_sends_no_more(
    server: HttpServer,
) -> None:
    with server.connect(timeout_s=5) as connection:
        connection.sendall(HEAD + LENGTH + BODY + HEAD + LENGTH + BODY[:5])
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection).count(b"HTTP/1.1 ") == 1


def test_a_body_that_is_not_valid_is_refused_after_the_client_closed_its_sending_side(
    server: HttpServer,
) -> None:
    with server.connect(timeout_s=5) as connection:
        connection.sendall(HEAD + LENGTH + BODY + HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n")
        connection.shutdown(socket.SHUT_WR)
        answers = receive_all(connection).split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200", b"400"]


# ---------------------------------------------------------------- stops


def test_a_stop_does_not_wait_for_a_client_that_sent_an_empty_line() -> None:
    """Some clients send a line end after a body (RFC 9112, section 2.2)."""
    with serve_in_thread(replace(QUIET, drain_s=20.0)) as server, server.connect() as connection:
        connection.sendall(HEAD + LENGTH + BODY + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        server.service.drain.stop(time.monotonic(), at_once=True)
        wait_until(lambda: not server.runner.server_state.connections, patience_s=4)
