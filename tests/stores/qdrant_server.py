"""The part of Qdrant's HTTP API that vecmill uses, answered by the client's local mode, with what was sent.

`python -m stores.qdrant_server` writes the requests of the scenario to `qdrant_requests.json`.
"""

import json
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models

from stores.scenario import play

RECORDED = Path(__file__).with_name("qdrant_requests.json")


@contextmanager
def serve_qdrant(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server whose collections are in a folder, and the requests that it gets."""
    sent: list[dict[str, Any]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, sent)) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()


def _handler(folder: Path, sent: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)) or "null")
            request = {"method": self.command, "path": self.path, "body": body}
            sent.append(request)
            answer = json.dumps(self._find_answer(request)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _find_answer(self, request: dict[str, Any]) -> dict[str, Any]:
            # The folder is open for one request only, so that tests can read it.
            with lock:
                client = QdrantClient(path=str(folder))
                try:
                    return {"result": _answer(client, request), "status": "ok", "time": 0.0}
                finally:
                    client.close()

        do_POST = do_PUT = do_PATCH = do_GET

        def log_message(self, *_: Any) -> None:
            """Write no line for each request."""

    return Handler


def _answer(client: QdrantClient, request: Mapping[str, Any]) -> Any:
    """The result of a request."""
    body = request["body"]
    match = re.fullmatch(r"/collections/(\w+)(/[\w/]+)?(\?.*)?", request["path"])
    assert match is not None, request["path"]
    name, action = match[1], match[2] or ""
    written = {"operation_id": 1, "status": "completed"}

    def create() -> Any:
        vectors = models.VectorParams(**body["vectors"])
        return client.create_collection(name, vectors, metadata=body["metadata"])

    def upsert() -> Any:
        client.upsert(name, [models.PointStruct(**point) for point in body["points"]])
        return written

    def scroll() -> Any:
        points, offset = client.scroll(
            name, limit=body["limit"], offset=body.get("offset"), with_payload=body["with_payload"]
        )
        return {"points": [_dump(point) for point in points], "next_page_offset": offset}

    def delete() -> Any:
        client.delete(name, models.PointIdsList(points=body["points"]))
        return written

    def change() -> Any:
        operations = [models.SetPayloadOperation(**each) for each in body["operations"]]
        client.batch_update_points(name, operations)
        return [written] * len(operations)

    answers: Mapping[str, Callable[[], Any]] = {
        "GET /exists": lambda: {"exists": client.collection_exists(name)},
        "PUT ": create,
        "GET ": lambda: _dump(client.get_collection(name)),
        "POST /points/count": lambda: _dump(client.count(name, exact=body["exact"])),
        "PUT /points": upsert,
        "POST /points/scroll": scroll,
        "POST /points/delete": delete,
        "POST /points/batch": change,
    }
    return answers[f"{request['method']} {action}"]()


def _dump(found: Any) -> Any:
    return found.model_dump(mode="json")


def play_requests(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the scenario into a server, and return its outcome and the requests."""
    with serve_qdrant(folder) as (url, sent):
        return play("qdrant", str(folder), f"qdrant:{url}/docs"), sent


def summarise(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests with the first of many points, and without the digits of vectors."""
    text = re.sub(r"-?\d\.\d+(e-\d+)?", "0.5", json.dumps(sent))
    requests: list[dict[str, Any]] = json.loads(text)
    for request in requests:
        body = request["body"] or {}
        for name in ("points", "operations"):
            if name in body:
                body[name] = [*body[name][:1], f"{len(body[name])} in all"]
    return requests


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        _, requests = play_requests(Path(scratch))
    RECORDED.write_text(json.dumps(summarise(requests), indent=1) + "\n", "utf-8")
