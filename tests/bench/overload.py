"""Heavy use: bulk requests side by side, single texts beyond capacity, and two clients with a key each.

    make bench-overload

Clients come back when `retry-after` says so. Capacity is what 32 clients with single texts get.
"""

import json
import math
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from bench.generator import make_orders, run_load, write_bodies
from bench.process_use import MemoryPeak
from bench.program import SERVE, make_parser, start
from bench.report import Figure, at_least
from bench.rigs import shuffled
from support.server import MODEL, LiveServer, stop_server
from support.texts import mixed_texts
from vecmill_server.app.routes.prometheus import PAGE_AGE_S
from vecmill_server.bench.generator import run_generator
from vecmill_server.bench.load_results import OK, BenchLoad, LoadResult
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

SEED = 20_260_104
BULK_TEXTS = 2_048
# A server whose queue is not empty so long after its clients have gone is stuck.
QUIET_S = 120.0
# What is still open when the last single text has been sent gets so long.
PATIENCE_S = 90.0
REFUSED = 429
# The status of a request whose connection broke, and the pause after it.
BROKEN, BROKEN_PAUSE_S = 0, 1.0


@dataclass
class BulkClient:
    """A client that sends requests of many texts one after the other until a moment is over."""

    url: str
    bodies: Sequence[bytes]
    key: str
    until: float
    texts: int = BULK_TEXTS
    delivered: int = 0
    last_at: float = 0.0
    statuses: list[int] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        number = 0
        while time.perf_counter() < self.until:
            began = time.perf_counter()
            status, retry_after_s = ask(self.url, self.bodies[number % len(self.bodies)], self.key)
            self.statuses.append(status)
            if status == 200:
                number += 1
                self.last_at = time.perf_counter()
                self.took_s.append(self.last_at - began)
                self.delivered += self.texts
            else:
                time.sleep(retry_after_s)


def ask(url: str, body: bytes, key: str) -> tuple[int, float]:
    """Send one request; return its status and the seconds after which the server says to come again.

    The status is `BROKEN` if the connection broke.
    """
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{url}/v1/embeddings", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()
            return answer.status, 0.0
    except urllib.error.HTTPError as error:
        with error:
            error.read()
        return error.code, int(error.headers.get("retry-after-ms", "1000")) / 1000
    except (OSError, HTTPException):
        return BROKEN, BROKEN_PAUSE_S


def bulk_body(seed: int, texts: int = BULK_TEXTS) -> bytes:
    """The body of a request of mixed texts that no other seed has."""
    inputs = shuffled([f"{seed} {text}" for text in mixed_texts(seed, texts)], seed)
    return json.dumps({"model": MODEL, "input": inputs, "encoding_format": "base64"}).encode()


def read_counts(url: str) -> dict[str, float]:
    """The sums of all series of each metric."""
    counts: dict[str, float] = {}
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                for key in (name, name.partition("{")[0]):
                    counts[key] = counts.get(key, 0.0) + float(value)
    return counts


def wait_until_quiet(url: str) -> float:
    """Wait until nothing waits; return how long that took. Raises `TimeoutError` if something always does."""
    began = time.perf_counter()
    while read_counts(url)["vecmill_queue_texts"]:
        if time.perf_counter() - began > QUIET_S:
            raise TimeoutError(f"texts still wait after {QUIET_S:g} s without clients")
        time.sleep(0.1)
    return time.perf_counter() - began


def wait_until_idle(url: str) -> None:
    """Wait until no text is computed any more. Raises `TimeoutError` if some always are."""
    until, computed = time.perf_counter() + QUIET_S, -1.0
    while (now := read_counts(url)["vecmill_batch_texts_sum"]) != computed:
        if time.perf_counter() > until:
            raise TimeoutError(f"texts are still computed after {QUIET_S:g} s without clients")
        computed = now
        time.sleep(2 * PAGE_AGE_S)


@dataclass(frozen=True, slots=True)
class BulkRun:
    """What some bulk clients got: texts a second, the share computed in vain, and the statuses."""

    rate: float
    wasted_share: float
    statuses: dict[int, int]

    @property
    def other(self) -> int:
        """The requests that were neither answered nor refused for lack of room."""
        return sum(count for status, count in self.statuses.items() if status not in (200, 429))


def run_bulk(url: str, clients: Sequence[BulkClient]) -> BulkRun:
    before, began = read_counts(url), time.perf_counter()
    join_all(start_all(clients))
    ended = max(client.last_at for client in clients)
    wait_until_quiet(url)
    time.sleep(PAGE_AGE_S)  # a younger page may be from before the last answers
    after = read_counts(url)
    computed = after["vecmill_batch_texts_sum"] - before["vecmill_batch_texts_sum"]
    delivered = sum(client.delivered for client in clients)
    statuses = [status for client in clients for status in client.statuses]
    found = {status: statuses.count(status) for status in sorted(set(statuses))}
    return BulkRun(delivered / (ended - began), 1 - delivered / max(computed, 1), found)


def start_all(clients: Sequence[BulkClient]) -> list[threading.Thread]:
    """Start a thread for each client. An interrupted measurement does not wait for them."""
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    return threads


def join_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def bench_bulk(url: str, seconds: float, counts: Sequence[int]) -> list[Figure]:
    """The rate and the waste for each number of clients."""
    figures, alone = [], 0.0
    wait_until_idle(url)  # it computes sample texts of its own after its start
    for count in counts:
        bodies = [[bulk_body(SEED + 100 * client + n) for n in range(3)] for client in range(count)]
        until = time.perf_counter() + seconds
        run = run_bulk(url, [BulkClient(url, each, "", until) for each in bodies])
        alone = alone or run.rate
        print(f"{count} clients of {BULK_TEXTS} texts: {run}", flush=True)
        name = f"{count} bulk clients"
        figures += [
            Figure(f"{name}: rate", "texts/s", (run.rate,)),
            at_least(f"{name}: of one client's", "ratio", [run.rate / alone], 0.9),
            Figure(f"{name}: wasted", "share", (run.wasted_share,), 0.02),
            Figure(f"{name}: neither answered nor refused", "requests", (float(run.other),), 0),
        ]
    return figures


def bench_singles(server: LiveServer, folder: Path, seconds: int, factors: Sequence[float]) -> list[Figure]:
    """Goodput, refusals and latencies of single texts at multiples of capacity."""
    bodies = write_bodies(folder / "singles", shuffled(mixed_texts(SEED, 20_000), SEED))
    target = MeasuredServer.of(f"{server.url}/v1", ServerApi.EMBEDDINGS, None)
    figures = []
    capacities = [measure_capacity(server.url, bodies, seconds)]
    for factor in factors:
        with MemoryPeak(server.process.pid) as memory:
            wanted = BenchLoad("singles", 1, rate_hz=factor * capacities[-1])
            orders = make_orders(target, bodies, wanted, duration_s=seconds, timeout_s=PATIENCE_S, seed=SEED)
            found = run_generator(orders, wanted)
        assert found.refusal is None, found.refusal
        recovered_s = time_to_normal(server.url)
        capacities.append(measure_capacity(server.url, bodies, seconds))
        capacity = statistics.mean(capacities[-2:])  # a shared machine changes its speed within minutes
        figures += single_figures(f"{factor:g}x", found, capacity)
        name = f"singles at {factor:g}x"
        figures.append(Figure(f"{name}: memory rise", "MB", (memory.peak_mb - memory.before_mb,), 100))
        figures.append(Figure(f"{name}: normal again", "s", (recovered_s,), 5))
    return figures


def measure_capacity(url: str, bodies: Path, seconds: int) -> float:
    """The texts a second that 32 clients get, each with one text at a time."""
    return run_load(url, bodies, connections=32, duration_s=max(5, seconds // 4)).rate


def single_figures(times: str, found: LoadResult, capacity: float) -> list[Figure]:
    """The figures of one run of single texts."""
    sent, answered = sum(found.statuses.values()), found.statuses.get(OK, 0)
    refused = found.statuses.get(REFUSED, 0)
    other = sent - answered - refused
    print(
        f"singles at {times}: capacity {capacity:.0f}/s, {sent} sent, {answered} answered, "
        f"{found.requests_per_s:.0f}/s of them meanwhile, {refused} refused, {other} other, "
        f"generator {found.processor_share:.2f} cores, "
        f"p99 of its own delay {1e3 * found.delay_p99_s:.1f} ms",
        flush=True,
    )
    name, took_s, refusal_s = f"singles at {times}", found.percentiles_s, found.error_percentiles_s
    goodput = found.requests_per_s / capacity
    figures = [
        at_least(f"{name}: goodput / capacity", "ratio", [goodput], 0.95),
        Figure(f"{name}: accepted, p50", "s", (took_s["p50"],), 5),
        Figure(f"{name}: accepted, p99", "s", (took_s["p99"],), 30),
        Figure(f"{name}: neither answered nor refused", "requests", (float(other),), 0),
    ]
    if refused:
        figures.append(Figure(f"{name}: refusal, p50", "ms", (1e3 * refusal_s["p50"],), 20))
        figures.append(Figure(f"{name}: refusal, p99", "ms", (1e3 * refusal_s["p99"],), 20))
    return figures


def time_to_normal(url: str) -> float:
    """Return how long it takes until a single text is answered within a tenth of a second.

    Infinite if it takes longer than `QUIET_S`.
    """
    began = time.perf_counter()
    while time.perf_counter() - began < QUIET_S:
        asked = time.perf_counter()
        status, _ = ask(url, json.dumps({"input": "is it quiet?"}).encode(), "")
        if status == 200 and time.perf_counter() - asked < 0.1:
            return time.perf_counter() - began
        time.sleep(0.05)
    return math.inf


def bench_two_keys(url: str, seconds: float) -> list[Figure]:
    """How much slower a client becomes beside another one with 32 bulk requests."""
    alone, _ = run_second_client(url, seconds)
    until = time.perf_counter() + 2 * seconds
    rivals = [
        BulkClient(url, [bulk_body(SEED + 7_000 + 3 * n + k) for k in range(3)], "first", until)
        for n in range(32)
    ]
    threads = start_all(rivals)
    time.sleep(3)
    before = read_counts(url)["vecmill_batch_texts_sum"]
    beside, own = run_second_client(url, seconds)
    of_first = read_counts(url)["vecmill_batch_texts_sum"] - before - own
    join_all(threads)
    # Beside a client that is refused whole, the second key is as good as alone.
    figures = [at_least("first key: texts computed meanwhile", "texts", [of_first], 100)]
    for what in ("single text", "small bulk request"):
        times = f"{1e3 * alone[what]:.0f} ms alone, {1e3 * beside[what]:.0f} ms beside 32 bulk requests"
        print(f"second key, {what}: {times}", flush=True)
        figures.append(
            Figure(f"second key, {what}: beside / alone", "ratio", (beside[what] / alone[what],), 3)
        )
    return figures


def run_second_client(url: str, seconds: float) -> tuple[dict[str, float], int]:
    """The medians of the second client's single texts and small bulk requests, and its number of texts."""
    until = time.perf_counter() + seconds
    texts = shuffled(mixed_texts(SEED + 1, 2_000), SEED)
    singles = [json.dumps({"model": MODEL, "input": f"{n} {text}"}).encode() for n, text in enumerate(texts)]
    small = BulkClient(url, [bulk_body(SEED + 9_000 + n, 100) for n in range(20)], "second", until, texts=100)
    single = BulkClient(url, singles, "second", until, texts=1)
    join_all(start_all([small, single]))
    statuses = single.statuses + small.statuses
    print(f"second key: {len(statuses)} requests, {statuses.count(200)} answered", flush=True)
    medians = {
        "single text": statistics.median(single.took_s),
        "small bulk request": statistics.median(small.took_s),
    }
    return medians, single.delivered + small.delivered


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, seconds=60, serve=SERVE)
    parser.add_argument("--parts", nargs="+", default=["bulk", "singles", "keys"])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 2, 4, 8, 32])
    parser.add_argument("--factors", nargs="+", type=float, default=[2.0, 10.0])
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        if {"bulk", "singles"} & set(options.parts):
            server = run.serve("--no-access-log")
            if "bulk" in options.parts:
                figures += bench_bulk(server.url, options.seconds, options.clients)
            if "singles" in options.parts:
                figures += bench_singles(server, run.folder, options.seconds, options.factors)
            stop_server(server.process)
        if "keys" in options.parts:
            server = run.serve("--no-access-log", "--api-key", "first", "--api-key", "second", name="keys")
            figures += bench_two_keys(server.url, options.seconds)
    return run.finish("overload", "Heavy use", figures)


if __name__ == "__main__":
    sys.exit(main())
