"""Files of requests, and what comes of them, for tests of batches."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
import numpy as np

from support.http_server import wait_until
from vecmill.values.aliases import FloatArray

ENDED = {"completed", "failed", "expired", "cancelled"}


def request_line(custom_id: str, body: dict[str, Any]) -> str:
    """One line of an input file."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body})


def upload(client: httpx.Client, lines: Iterable[str]) -> str:
    """Upload a file of `lines`; its id."""
    content = "\n".join(lines).encode()
    answer = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
    assert answer.status_code == 200, answer.text
    file_id: str = answer.json()["id"]
    return file_id


def create_batch(client: httpx.Client, lines: Iterable[str], **options: Any) -> str:
    """Upload `lines` and make a batch of them; its id."""
    body = {"input_file_id": upload(client, lines), "endpoint": "/v1/embeddings", "completion_window": "24h"}
    answer = client.post("/v1/batches", json={**body, **options})
    assert answer.status_code == 200, answer.text
    batch_id: str = answer.json()["id"]
    return batch_id


def retrieve(client: httpx.Client, batch_id: str) -> dict[str, Any]:
    """The batch as it is now."""
    document: dict[str, Any] = client.get(f"/v1/batches/{batch_id}").json()
    return document


def ended(client: httpx.Client, batch_id: str, *, patience_s: float = 60.0) -> dict[str, Any]:
    """The batch once it has ended."""
    wait_until(lambda: retrieve(client, batch_id)["status"] in ENDED, patience_s=patience_s)
    return retrieve(client, batch_id)


def lines_of(client: httpx.Client, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a file; none if there is no file."""
    if file_id is None:
        return []
    answer = client.get(f"/v1/files/{file_id}/content")
    assert answer.status_code == 200
    assert answer.content.endswith(b"\n")
    return [json.loads(line) for line in answer.content.splitlines()]


def rows_of(line: dict[str, Any]) -> FloatArray:
    """The rows of a line of output, (texts, dim)."""
    assert line["error"] is None
    assert line["response"]["status_code"] == 200
    return np.array([entry["embedding"] for entry in line["response"]["body"]["data"]], np.float32)
