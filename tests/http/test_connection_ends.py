"""A connection goes on after a response if both sides know where the next request begins, else it ends."""

import pytest

from support.http_server import (
    HttpServer,
    receive_all,
    send_all,
)

BODY = b'{"input": "hello"}'
HEAD = b"POST /embeddings HTTP/1.1\r\nhost: x\r\n"
LENGTH = b"content-length: 18\r\n\r\n"
PROBE = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSE = b"\r\nconnection: close\r\n"


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
