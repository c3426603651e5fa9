"""A proxy that keeps the requests that clients send to a server through it."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Of the connection, not of the request.
NOT_KEPT = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as a client sent it. Names of headers are in lower case; the body is its text."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str


@contextmanager
def recording(url: str) -> Iterator[tuple[str, list[SentRequest]]]:
    """The address of a proxy of `url`, and the requests that it was sent until the block ends."""
    kept: list[SentRequest] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(url, kept)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}", kept
        finally:
            proxy.shutdown()
            thread.join()


def _handler(url: str, kept: list[SentRequest]) -> type[BaseHTTPRequestHandler]:
    """The class of a handler that keeps each request and hands it on to `url`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers = {name: value for name, value in headers.items() if name not in NOT_KEPT}
            kept.append(SentRequest(self.command, self.path, headers, body.decode()))
            status, answer = _forward(url, self.command, self.path, headers, body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler


def _forward(url: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """The status and the body of the server's answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
