"""A server of `/v1/embeddings` with vectors by digest, which counts the texts that it embeds."""

import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import numpy.typing as npt

from vecmill.bulk.embedder import PROBE

DIM = 16
SPACE = "s1-" + "0" * 32


def vector_of(text: str, dim: int = DIM) -> npt.NDArray[np.float32]:
    """The vector of a text: normalised, and another one for each text."""
    digits = b"".join(hashlib.sha256(f"{at} {text}".encode()).digest() for at in range(-(-dim // 32)))
    numbers = np.frombuffer(digits, np.uint8)[:dim].astype(np.float64) - 127.5
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)


class CountedTexts:
    """How often each text was embedded. Used by several threads."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.total = 0
        self._changed = threading.Condition()

    def add(self, texts: list[str]) -> None:
        with self._changed:
            self.counts.update(texts)
            self.total += len(texts)
            self._changed.notify_all()

    def wait_for(self, total: int, timeout_s: float) -> bool:
        """Wait until so many texts were embedded; false if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.total >= total, timeout_s)

    @property
    def repeated(self) -> int:
        """How many texts were embedded that had been embedded before."""
        return self.total - len(self.counts)


@contextmanager
def serve_counted() -> Iterator[tuple[str, CountedTexts]]:
    """The address of a server, and what it counts."""
    counted = CountedTexts()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(counted)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", counted
        finally:
            server.shutdown()
            thread.join()


def _handler(counted: CountedTexts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({"data": [{"id": "digests"}]})

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            counted.add([text for text in texts if text != PROBE])
            rows = [base64.b64encode(vector_of(text).tobytes()).decode() for text in texts]
            data = [{"index": at, "embedding": row} for at, row in enumerate(rows)]
            self._answer({"model": "digests", "data": data, "usage": {"prompt_tokens": len(texts)}})

        def _answer(self, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("x-space", SPACE)
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            # A client that is killed leaves its connections.
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Write no line for each request."""

    return Handler
