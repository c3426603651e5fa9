"""The files of one key keep neither the batches of another key nor its requests waiting."""

import json
import secrets
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.batches import ENDED, create_batch, retrieve
from support.livez_gap import livez_gap
from support.server import live_server

MIB = 1024 * 1024
# Beyond the longest gap of an idle process beside the server.
LONGEST_GAP_S = 0.25
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    """The bytes of a hostile file, the batches of each, and the longest that others wait for a batch."""

    file_bytes: int
    batches: int
    wait_s: float
    watched_s: float


SMALL = Size(2 * MIB, 2, 5.0, 1.0)
FULL = Size(60 * MIB, 6, 5.0, 30.0)


def hostile_files(size: int) -> list[bytes]:
    """Files that take long to check for each byte, or that have many lines to run."""
    request = json.dumps(
        {
            "custom_id": "%d",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"input": "some words", "metadata": [[]] * 250},
        }
    ).encode()
    count = min(45_000, size // len(request))
    requests = [request % number for number in range(count)]
    return [
        b"\n" * size,
        (b" " * 1_000 + b"\n") * (size // 1_001),
        b"\n".join(requests),
        (b"\n" * 9).join(requests),
        b"1\n" * (size // 2),
    ]


@contextmanager
def two_keys(folder: Path, cache: Path) -> Iterator[tuple[int, httpx.Client, httpx.Client]]:
    """A server with two owners: its port, and a client of each."""
    keys = [secrets.token_hex(16) for _ in range(2)]
    key_file = folder / "keys"
    key_file.write_text(f"hostile {keys[0]}\nother {keys[1]}\n")
    key_file.chmod(0o600)
    arguments = ["--batch-dir", str(folder / "batches"), "--api-key-file", str(key_file)]
    with live_server(folder, arguments=arguments, cache=cache) as server, ExitStack() as stack:
        port = httpx.URL(server.url).port
        assert port is not None
        clients = (
            httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE_S)
            for key in keys
        )
        hostile, other = (stack.enter_context(client) for client in clients)
        yield port, hostile, other


def create(client: httpx.Client, content: bytes, count: int) -> None:
    files = {"file": ("in.jsonl", content)}
    file_id = client.post("/v1/files", data={"purpose": "batch"}, files=files).json()["id"]
    for _ in range(count):
        answer = client.post("/v1/batches", json={"input_file_id": file_id, "endpoint": "/v1/embeddings"})
        assert answer.status_code == 200, answer.text


def batch_s(client: httpx.Client) -> float:
    """Return the time of a batch of one line, in seconds."""
    body: dict[str, Any] = {"input": "one text"}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body})
    began = time.perf_counter()
    batch_id = create_batch(client, [line])
    while (batch := retrieve(client, batch_id))["status"] not in ENDED:
        assert time.perf_counter() < began + PATIENCE_S
        time.sleep(0.01)
    assert batch["status"] == "completed"
    return time.perf_counter() - began


def embedding_s(client: httpx.Client, text: str) -> float:
    began = time.perf_counter()
    assert client.post("/v1/embeddings", json={"input": text}).status_code == 200
    return time.perf_counter() - began


@pytest.mark.promise("owners-apart", "no-starvation", "loop-responsive")
@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.full)], ids=["small", "full"])
def test_batches_of_another_key_do_not_wait_for_hostile_files(
    tmp_path: Path, kept_models: Path, size: Size
) -> None:
    contents = hostile_files(size.file_bytes)
    batches, embeddings = list[float](), list[float]()
    with two_keys(tmp_path, kept_models) as (port, hostile, other):
        alone_s = batch_s(other)
        with livez_gap(port) as gap:
            for content in contents:
                create(hostile, content, size.batches)
            until = time.perf_counter() + size.watched_s
            while not batches or time.perf_counter() < until:
                batches.append(batch_s(other))
                embeddings += [embedding_s(other, f"text {len(embeddings)} {n}") for n in range(5)]
    print(f"a batch alone {alone_s:.2f} s, beside: {len(batches)}, the longest {max(batches):.2f} s")
    print(f"a text: median {statistics.median(embeddings):.3f} s, the longest {max(embeddings):.3f} s")
    print(f"gap of /livez: {gap.server_s:.3f} s, of the control {gap.control_s:.3f} s")
    assert max(batches) < size.wait_s
    assert gap.beyond_control_s < LONGEST_GAP_S
