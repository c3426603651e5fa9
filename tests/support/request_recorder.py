"""A server between a client and the server: it passes requests on and keeps what the client sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

# Headers that choose what the server does with a request.
KEPT_HEADERS = ("accept", "api-key", "authorization", "content-type", "x-pinecone-api-version")


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as a client sent it: the target, the headers that matter, and the text of the body."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


@contextmanager
def recording_server(url: str) -> Iterator[tuple[str, list[SentRequest]]]:
    """Pass requests on to `url` until the block ends. Yields the address, and the requests as they come."""
    sent: list[SentRequest] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

        def do_GET(self) -> None:
            self._pass_on(b"")

        def log_message(self, format: str, *values: object) -> None:
            """Be silent."""

        def _pass_on(self, body: bytes) -> None:
            headers = {name: self.headers[name] for name in KEPT_HEADERS if name in self.headers}
            sent.append(SentRequest(self.command, self.path, headers, body.decode()))
            answer = client.request(self.command, self.path, headers=headers, content=body)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    with (
        httpx.Client(base_url=url, timeout=60) as client,
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, name="request-recorder")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()
