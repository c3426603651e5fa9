"""Floods of cheap requests against a real server, and how long `/livez` is silent meanwhile.

Each flood is many connections that send the same kind of request, one after the other or pipelined. The
server has 10,000 API keys. `/livez` is asked by a process of its own, beside an idle process.
"""

import asyncio
import hashlib
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from support.livez_gap import livez_gap
from support.server import LiveServer, live_server

# Beyond the longest gap of an idle process beside the server.
LONGEST_GAP_S = 0.25
KEYS = 10_000
KEY = "the-key-0"
BLANK_LINES = b"\n" * 65_536
PATIENCE_S = 300.0

# Returns a request by its number.
Requests = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Scale:
    """How many connections there are, and how many requests each sends."""

    connections: int
    requests: int


FULL = Scale(connections=100, requests=50)
SMALL = Scale(connections=100, requests=2)


@dataclass(frozen=True, slots=True)
class Flood:
    """Requests, and the statuses of their answers. `prepare` is called with the URL of the server."""

    prepare: Callable[[str], Requests]
    statuses: frozenset[int]
    is_pipelined: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The longest gap of `/livez` beyond that of the idle process, and the number of answers by status."""

    gap_s: float
    statuses: Counter[int]


def get(path: str, **headers: str) -> Callable[[str], Requests]:
    """The same request again and again."""
    request = _head("GET", path, headers) + b"\r\n"
    return lambda _: lambda _: request


def post(path: str, content: bytes, **headers: str) -> Callable[[str], Requests]:
    """The same request again and again, with a body."""
    request = _with_body(path, content, headers)
    return lambda _: lambda _: request


def wrong_keys(path: str) -> Callable[[str], Requests]:
    """Requests each with another key, none of which is valid."""
    return lambda _: lambda number: _head("GET", path, _bearer(f"wrong-key-{number}")) + b"\r\n"


def batches_of_blank_lines(url: str) -> Requests:
    """Requests for batches of one file, which has blank lines only."""
    head, tail = b"--edge\r\ncontent-disposition: form-data; ", b"\r\n--edge--\r\n"
    purpose = head + b'name="purpose"\r\n\r\nbatch\r\n'
    form = purpose + head + b'name="file"; filename="in.jsonl"\r\n\r\n' + BLANK_LINES + tail
    headers = {**_bearer(KEY), "content-type": "multipart/form-data; boundary=edge"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/files", form, headers)) as answer:
        file_id = json.load(answer)["id"]
    batch = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    request = _with_body("/v1/batches", json.dumps(batch).encode(), _bearer(KEY))
    return lambda _: request


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in lines).encode()


def _with_body(path: str, content: bytes, headers: dict[str, str]) -> bytes:
    return _head("POST", path, headers) + b"content-length: %d\r\n\r\n%s" % (len(content), content)


_OPENMETRICS = "application/openmetrics-text"
_OK, _UNAUTHORISED = frozenset({200}), frozenset({401})
FLOODS = MappingProxyType(
    {
        "metrics": Flood(get("/metrics"), _OK),
        "metrics, pipelined": Flood(get("/metrics"), _OK, is_pipelined=True),
        "OpenMetrics": Flood(get("/metrics", accept=_OPENMETRICS), _OK),
        "OpenMetrics, pipelined": Flood(get("/metrics", accept=_OPENMETRICS), _OK, is_pipelined=True),
        "wrong keys": Flood(wrong_keys("/v1/models"), _UNAUTHORISED),
        "wrong keys, pipelined": Flood(wrong_keys("/v1/models"), _UNAUTHORISED, is_pipelined=True),
        "wrong keys and a body": Flood(
            post("/v1/embeddings", b" " * 1_024, **_bearer("wrong-key")), _UNAUTHORISED
        ),
        "description of the API": Flood(get("/openapi.json"), _OK),
        "page of the API": Flood(get("/docs"), _OK),
        "styles of the page of the API": Flood(get("/docs/swagger-ui.css"), _OK),
        "console": Flood(get("/", accept="text/html"), _OK),
        "state for the console": Flood(get("/console/state.json"), _OK),
        "readiness": Flood(get("/readyz"), _OK),
        "readiness, pipelined": Flood(get("/readyz"), _OK, is_pipelined=True),
        "unknown paths": Flood(get("/nowhere", **_bearer(KEY)), frozenset({404})),
        "unknown paths, in a browser": Flood(
            get("/nowhere", accept="text/html", **_bearer(KEY)), frozenset({404})
        ),
        "wrong methods": Flood(get("/v1/embeddings", **_bearer(KEY)), frozenset({405})),
        "models": Flood(get("/v1/models", **_bearer(KEY)), _OK),
        "models for the console": Flood(get("/console/models.json", **_bearer(KEY)), _OK),
        "batches of blank lines": Flood(batches_of_blank_lines, frozenset({200, 400, 413, 429})),
    }
)


async def send_flood(port: int, requests: Requests, scale: Scale, *, is_pipelined: bool) -> Counter[int]:
    """Send the requests of all connections; return the number of answers by status.

    Raises `IncompleteReadError` if a request was not answered.
    """
    found: Counter[int] = Counter()

    async def send(connection: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        numbers = range(connection * scale.requests, (connection + 1) * scale.requests)
        if is_pipelined:
            writer.write(b"".join(map(requests, numbers)))
        for number in numbers:
            if not is_pipelined:
                writer.write(requests(number))
            found[await _read_answer(reader)] += 1
        writer.close()

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*map(send, range(scale.connections)))
    return found


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    (length,) = (line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split()[1])


@contextmanager
def flooded_server(folder: Path) -> Iterator[LiveServer]:
    """A server with many keys, and with batches, until the block ends."""
    digests = (hashlib.sha256(f"the-key-{number}".encode()).hexdigest() for number in range(KEYS))
    lines = (f"owner-{number} sha256:{digest}\n" for number, digest in enumerate(digests))
    (folder / "keys").write_text("".join(lines))
    arguments = [
        "--engine",
        "fake",
        "--api-key-file",
        str(folder / "keys"),
        "--batch-dir",
        str(folder / "batches"),
    ]
    with live_server(folder, arguments=arguments) as server:
        yield server


def run_flood(server: LiveServer, flood: Flood, scale: Scale) -> Finding:
    """Send one flood and measure `/livez` meanwhile."""
    port = int(server.url.rpartition(":")[2])
    requests = flood.prepare(server.url)
    with livez_gap(port) as gap:
        statuses = asyncio.run(send_flood(port, requests, scale, is_pipelined=flood.is_pipelined))
    return Finding(gap.beyond_control_s, statuses)
