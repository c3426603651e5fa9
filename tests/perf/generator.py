"""Load from `wrk`: a native generator, since one in Python would use the cores that it measures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.server import MODEL
from vecmill_server.bench.load import OK, Load
from vecmill_server.bench.wrk import WrkOrders, find_wrk, run_wrk

HEADERS = {"content-type": "application/json"}


class NoGenerator(SystemExit):
    """`wrk` is missing."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run of wrk saw. `rate` is answers a second; latencies are in seconds."""

    requests: int
    rate: float
    p50_s: float
    p99_s: float


def require_wrk() -> str:
    """Where `wrk` is. Raises `NoGenerator`, which says how to get it."""
    found = find_wrk()
    if found is None:
        raise NoGenerator("The load comes from wrk, which is not installed. On Debian: apt-get install wrk")
    return found


def write_bodies(path: Path, texts: Sequence[str]) -> Path:
    """One request for each text, base64, as OpenAI's SDKs ask; one a line."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            body = {"model": MODEL, "input": text, "encoding_format": "base64"}
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
    return path


def run_load(
    url: str, bodies: Path, *, connections: int, duration_s: int, route: str = "/v1/embeddings"
) -> LoadResult:
    """Closed loop: each connection sends its next request when its last one was answered.

    Raises `AssertionError` if any answer is not a 200.
    """
    orders = WrkOrders(f"{url}{route}", HEADERS, bodies, duration_s, warm_s=0, timeout_s=60)
    found = run_wrk(require_wrk(), orders, Load("file", 1, clients=connections))
    assert found is not None, "an answer had an error status"
    assert not found.errors, found.statuses
    times_s = found.percentiles_s
    return LoadResult(found.statuses[OK], found.requests_per_s, times_s["p50"], times_s["p99"])
