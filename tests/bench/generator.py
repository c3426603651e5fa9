"""Load from `wrk`: a native generator, since one in Python would use the cores that it measures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.wrk import find_wrk, run_wrk
from support.server import MODEL
from vecmill_server.bench import load_results
from vecmill_server.bench.generator import Orders, run_generator
from vecmill_server.bench.load_results import OK, BenchLoad
from vecmill_server.bench.target import MeasuredServer

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


def write_bodies(path: Path, texts: Sequence[str], in_request: int = 1) -> Path:
    """Requests of `in_request` texts each, base64, as OpenAI's SDKs ask; one a line."""
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, len(texts), in_request):
            inputs = texts[start] if in_request == 1 else list(texts[start : start + in_request])
            body = {"model": MODEL, "input": inputs, "encoding_format": "base64"}
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
    return path


def run_load(
    url: str, bodies: Path, *, connections: int, duration_s: int, route: str = "/v1/embeddings"
) -> LoadResult:
    """Closed loop: each connection sends its next request when its last one was answered.

    Raises `AssertionError` if any answer is not a 200.
    """
    found = run_closed_loop(url, bodies, connections=connections, duration_s=duration_s, route=route)
    times_s = found.percentiles_s
    return LoadResult(found.statuses[OK], found.requests_per_s, times_s["p50"], times_s["p99"])


def run_closed_loop(
    url: str, bodies: Path, *, connections: int, duration_s: int, route: str, timeout_s: int = 60
) -> load_results.LoadResult:
    """The same load as that of `run_load`, with all figures of `vecmill bench`.

    Raises `AssertionError` if any answer is not a 200.
    """
    wanted = BenchLoad("file", 1, clients=connections)
    orders = make_orders(target_at(url, route), bodies, wanted, duration_s=duration_s, timeout_s=timeout_s)
    found = run_wrk(require_wrk(), orders, wanted)
    assert found is not None, "an answer had an error status"
    assert not found.errors, found.statuses
    return found


def send_requests(
    target: MeasuredServer, bodies: Path, *, connections: int, requests: int, timeout_s: float
) -> load_results.LoadResult:
    """Send a number of requests in a closed loop, by the generator of `vecmill bench`.

    Raises `AssertionError` if any answer is not a 200, or if the generator was the limit.
    """
    wanted = BenchLoad("file", 1, clients=connections)
    orders = make_orders(target, bodies, wanted, duration_s=timeout_s * requests, timeout_s=timeout_s)
    found = run_generator(replace(orders, requests=requests), wanted)
    assert not found.errors, found.statuses
    assert found.refusal is None, found.refusal
    return found


def make_orders(
    target: MeasuredServer,
    bodies: Path,
    wanted: BenchLoad,
    *,
    duration_s: float,
    timeout_s: float,
    seed: int = 0,
) -> Orders:
    """The orders of a load for the generator of `vecmill bench`."""
    return Orders(
        target,
        bodies_file=str(bodies),
        clients=wanted.clients,
        rate_hz=wanted.rate_hz,
        duration_s=duration_s,
        warm_s=0.0,
        timeout_s=timeout_s,
        seed=seed,
    )


def predict_target(url: str) -> MeasuredServer:
    """The route `/predict` of a server."""
    return target_at(url, "/predict")


def target_at(url: str, route: str) -> MeasuredServer:
    """A route of a server."""
    host, _, port = url.removeprefix("http://").partition(":")
    return MeasuredServer(f"{url}{route}", url, host, int(port), is_tls=False, headers=HEADERS)
