"""Claims of docs/limits.md and docs/security.md about connections, which no other test keeps."""

import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from support.http_server import QUIET, receive_all, serve_in_thread
from vecmill.mill import Mill
from vecmill.requests import Caller, Request

KEEP_ALIVE_S = 0.4
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
FORWARDED = {
    "forwarded": "for=192.0.2.9;proto=https",
    "x-forwarded-for": "192.0.2.9",
    "x-forwarded-host": "elsewhere",
    "x-forwarded-proto": "https",
    "x-real-ip": "192.0.2.9",
}


def test_an_idle_connection_is_closed_after_its_time() -> None:
    with serve_in_thread(replace(QUIET, keep_alive_s=KEEP_ALIVE_S)) as server, server.connect() as connection:
        for _ in range(2):  # the time begins anew with each response
            connection.sendall(LIVEZ)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(KEEP_ALIVE_S / 2)
        began = time.monotonic()
        assert receive_all(connection) == b""
        assert time.monotonic() - began < KEEP_ALIVE_S + 2.0


def test_a_client_is_its_address_whatever_its_headers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, answer_request = [], Mill.answer

    def note(mill: Mill, request: Request[Any], caller: Caller) -> Coroutine[Any, Any, Any]:
        clients.append(caller.client)
        return answer_request(mill, request, caller)

    monkeypatch.setattr(Mill, "answer", note)
    with serve_in_thread() as server:
        answer = server.client.post("/embeddings", json={"input": "a"}, headers=FORWARDED)
        assert answer.status_code == 200
    assert set(clients) == {"127.0.0.1"}
