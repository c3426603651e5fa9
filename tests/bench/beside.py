"""Interactive requests beside bulk requests that keep the server busy: their waits, and the rate of the bulk.

    make bench-beside

In each round the interactive requests run alone, then the bulk requests, then both. The interactive requests
are an open loop of single short texts. The promise is stated in calls of the engine, whose mean duration
beside the bulk requests is that of `/metrics`.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.generator import make_orders, write_bodies
from bench.overload import BulkClient, bulk_body, join_all, read_counts, start_all, wait_until_quiet
from bench.program import SERVE, make_parser, start
from bench.report import Figure, at_least
from bench.rigs import shuffled
from support.texts import short_texts
from vecmill_server.bench.generator import run_generator
from vecmill_server.bench.load_results import OK, BenchLoad, LoadResult, summarise_latencies
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

SEED = 20_260_131
MOST_CALLS = 2.0
LEAST_BULK_SHARE = 0.8
WARM_S = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """The interactive requests alone and beside bulk, the bulk rates, and the mean time of a call beside.

    `bulk_statuses` are those of the bulk requests alone and beside.
    """

    alone: LoadResult
    beside: LoadResult
    bulk_alone: float
    bulk_beside: float
    call_s: float
    bulk_statuses: Sequence[int]

    @property
    def errors(self) -> int:
        """The requests without status 200, bulk requests included."""
        failed = sum(status != OK for status in self.bulk_statuses)
        return self.alone.errors + self.beside.errors + failed

    @property
    def refusals(self) -> int:
        """The interactive loads that measured the generator."""
        return sum(found.refusal is not None for found in (self.alone, self.beside))

    @property
    def more_s(self) -> float:
        """How much longer the interactive requests take beside bulk, at p99."""
        return self.beside.percentiles_s["p99"] - self.alone.percentiles_s["p99"]


class Rig:
    """A running server, the interactive load and the bulk clients."""

    def __init__(self, url: str, bodies: Path, options: argparse.Namespace) -> None:
        self._url = url
        self._bodies = bodies
        self._options = options
        self._sent = self._rounds = 0

    def measure(self) -> Round:
        """Run each load alone, then both."""
        self._rounds += 1
        alone = self._run_interactive()
        until = time.perf_counter() + WARM_S + self._options.seconds
        clients = self._bulk_clients(until)
        threads = start_all(clients)
        bulk_alone, _ = self._measure_rate(lambda: time.sleep(self._options.seconds - 1.0))
        join_all(threads)
        wait_until_quiet(self._url)
        # The interactive load warms up for `WARM_S` too.
        until = time.perf_counter() + 2 * WARM_S + self._options.seconds
        clients_beside = self._bulk_clients(until)
        threads = start_all(clients_beside)
        found: list[LoadResult] = []
        rate, call_s = self._measure_rate(lambda: found.append(self._run_interactive()))
        join_all(threads)
        wait_until_quiet(self._url)
        statuses = [status for client in (*clients, *clients_beside) for status in client.statuses]
        return Round(alone, found[0], bulk_alone, rate - self._options.rate, call_s, statuses)

    def _run_interactive(self) -> LoadResult:
        target = MeasuredServer.of(self._url, ServerApi.EMBEDDINGS, None)
        load = BenchLoad("short", 1, rate_hz=self._options.rate)
        seed = SEED + self._rounds  # other arrivals in each round
        seconds = self._options.seconds
        orders = make_orders(target, self._bodies, load, duration_s=seconds, timeout_s=30.0, seed=seed)
        return run_generator(replace(orders, warm_s=WARM_S), load)

    def _bulk_clients(self, until: float) -> list[BulkClient]:
        size = self._options.bulk_texts
        clients = []
        for _ in range(self._options.bulk_clients):
            self._sent += 1
            bodies = [bulk_request(SEED + 100 * self._sent + number, size) for number in range(8)]
            clients.append(BulkClient(self._url, bodies, "", until, texts=size))
        return clients

    def _measure_rate(self, run: Callable[[], object]) -> tuple[float, float]:
        """Return the texts computed per second while `run` runs, and the mean time of a call."""
        time.sleep(WARM_S)
        before, began = read_counts(self._url), time.perf_counter()
        run()
        after, passed_s = read_counts(self._url), time.perf_counter() - began

        def change(name: str) -> float:
            return after[name] - before[name]

        calls = max(change("vecmill_inference_seconds_count"), 1.0)
        return change("vecmill_batch_texts_sum") / passed_s, change("vecmill_inference_seconds_sum") / calls


def bulk_request(seed: int, texts: int) -> bytes:
    """The body of a bulk request of mixed texts that no other seed has."""
    return json.dumps({**json.loads(bulk_body(seed, texts)), "priority": "bulk"}).encode()


def figures_of(rounds: Sequence[Round]) -> list[Figure]:
    """The figures of all rounds, with the promises."""
    calls = tuple(one.more_s / one.call_s for one in rounds)
    # A round has too few requests for its p99, so the promise is that of all rounds.
    more_s = pooled_p99_s([one.beside for one in rounds]) - pooled_p99_s([one.alone for one in rounds])
    more_calls = more_s / median(one.call_s for one in rounds)
    shares = tuple(one.bulk_beside / one.bulk_alone for one in rounds)
    return [
        Figure("interactive alone, p50", "ms", tuple(1e3 * one.alone.percentiles_s["p50"] for one in rounds)),
        Figure("interactive alone, p99", "ms", tuple(1e3 * one.alone.percentiles_s["p99"] for one in rounds)),
        Figure("beside bulk, p50", "ms", tuple(1e3 * one.beside.percentiles_s["p50"] for one in rounds)),
        Figure("beside bulk, p99", "ms", tuple(1e3 * one.beside.percentiles_s["p99"] for one in rounds)),
        Figure("a call of the engine beside bulk", "ms", tuple(1e3 * one.call_s for one in rounds)),
        Figure("more beside bulk, p99 of a round, in calls", "calls", calls),
        Figure("more beside bulk, p99 of all rounds, in calls", "calls", (more_calls,), MOST_CALLS),
        Figure("bulk alone", "texts/s", tuple(one.bulk_alone for one in rounds)),
        Figure("bulk beside interactive", "texts/s", tuple(one.bulk_beside for one in rounds)),
        at_least("bulk beside interactive / alone", "ratio", shares, LEAST_BULK_SHARE),
        # Sums, because a median would hide the errors of one round.
        Figure("errors", "requests", (float(sum(one.errors for one in rounds)),), 0),
        Figure("measurements of the generator", "loads", (float(sum(one.refusals for one in rounds)),), 0),
    ]


def pooled_p99_s(found: Sequence[LoadResult]) -> float:
    """Return the 99th percentile of the latencies of several loads."""
    return summarise_latencies([latency for each in found for latency in each.latencies_s])["p99"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=20, serve=SERVE)
    parser.add_argument("--rate", type=float, default=10.0, help="Interactive requests a second.")
    parser.add_argument("--bulk-clients", type=int, default=4)
    parser.add_argument("--bulk-texts", type=int, default=256, help="The texts of a bulk request.")
    parser.add_argument("--engine", help="The engine of the server; by default its own choice.")
    rounds: list[Round] = []
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        server = run.serve("--no-access-log", *(["--engine", options.engine] if options.engine else []))
        bodies = write_bodies(run.folder / "bodies", shuffled(short_texts(SEED, 5_000), SEED))
        rig = Rig(server.url, bodies, options)
        for number in range(options.rounds):
            rounds.append(rig.measure())
            statuses = dict(Counter(rounds[-1].bulk_statuses))
            more_ms = rounds[-1].more_s * 1e3
            print(f"round {number + 1}: {more_ms:.1f} ms more at p99, bulk statuses {statuses}", flush=True)
    title = f"interactive requests beside {options.bulk_clients} bulk clients of {options.bulk_texts} texts"
    return run.finish("beside", title, figures_of(rounds))


if __name__ == "__main__":
    sys.exit(main())
