"""The run of `vecmill bench`: every load, one after the other, then the report."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from vecmill_server.bench.bench_report import (
    JSON_FILE,
    PLOT_FILE,
    can_plot,
    draw_latencies,
    format_table,
    write_json,
)
from vecmill_server.bench.generator import Orders, run_generator
from vecmill_server.bench.load import OK, BenchLoad, LoadResult
from vecmill_server.bench.request_sets import MAX_TEXTS, REQUESTS, ServerApi, make_bodies, read_texts
from vecmill_server.bench.target import MeasuredServer, find_model, send_test_request
from vecmill_server.bench.wrk import WrkOrders, find_wrk, run_wrk

# The requests, and the time for them, by which the tokens of a request are counted.
_COUNTED_REQUESTS, _COUNTING_S = 32, 5.0
# So the requests that wrk does not count are at most one in so many.
_MIN_REQUESTS_A_CLIENT = 20


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of the command."""

    url: str
    api: ServerApi
    model: str | None
    api_key: str | None
    texts: Sequence[str]
    batch: int
    clients: Sequence[int]
    rates_hz: Sequence[float]
    bulk_clients: int
    bulk_batch: int
    encoding: str
    seconds: int
    warm_seconds: int
    timeout_s: int
    seed: int
    output: Path | None


@dataclass(frozen=True, slots=True)
class _Requests:
    """The bodies of a text set in a file, and the mean tokens of a request."""

    bodies_file: Path
    tokens: float | None


class _Bench:
    """The loads on one server, with the bodies of their requests in `folder`."""

    def __init__(self, options: BenchOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._target = MeasuredServer.of(options.url, options.api, options.api_key)
        self.model = options.model or find_model(self._target)
        self._made: dict[tuple[str, int], _Requests] = {}

    def measure(self, load: BenchLoad) -> Iterator[LoadResult]:
        """Run a load, and the bulk clients beside it. Give the result of each."""
        options = self._options
        if not options.bulk_clients:
            yield self._run(load, uses_wrk=True)
            return
        bulk = BenchLoad(load.texts, options.bulk_batch, clients=options.bulk_clients)
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(self._run, bulk, uses_wrk=False)
            yield self._run(load, uses_wrk=False)
            yield beside.result()

    def _run(self, load: BenchLoad, *, uses_wrk: bool) -> LoadResult:
        requests = self._requests(load.texts, load.texts_per_request)
        wrk = find_wrk() if uses_wrk and load.clients is not None else None
        found = run_wrk(wrk, self._wrk_orders(requests), load) if wrk else None
        # wrk does not tell which error status a response had, so a load with errors is repeated without wrk.
        # So is a load on a slow server: wrk does not count the requests that are open at its end.
        if found is None or found.statuses.get(OK, 0) < _MIN_REQUESTS_A_CLIENT * (load.clients or 1):
            found = run_generator(self._orders(requests, load), load)
        return replace(found, tokens_per_request=requests.tokens)

    def prepare(self, texts: str, texts_per_request: int) -> None:
        """Make the bodies of a text set, and send some of them to the server."""
        options = self._options
        count = min(MAX_TEXTS, REQUESTS * texts_per_request)
        drawn = read_texts(texts, max(count, texts_per_request), options.seed)
        bodies = make_bodies(options.api, self.model, drawn, texts_per_request, options.encoding)
        file = self._folder / f"bodies-{len(self._made)}"
        file.write_bytes(b"".join(body + b"\n" for body in bodies))
        self._made[texts, texts_per_request] = _Requests(file, self._count_tokens(bodies))

    def _requests(self, texts: str, texts_per_request: int) -> _Requests:
        return self._made[texts, texts_per_request]

    def _count_tokens(self, bodies: Sequence[bytes]) -> float | None:
        ends_at = time.monotonic() + _COUNTING_S
        counted: list[float | None] = []
        for body in bodies[:_COUNTED_REQUESTS]:
            counted.append(send_test_request(self._target, body))
            if time.monotonic() > ends_at:
                break
        known = [tokens for tokens in counted if tokens is not None]
        return sum(known) / len(known) if len(known) == len(counted) else None

    def _orders(self, requests: _Requests, load: BenchLoad) -> Orders:
        options, target = self._options, self._target
        return Orders(
            host=target.host,
            port=target.port,
            is_tls=target.is_tls,
            head=target.head,
            bodies_file=str(requests.bodies_file),
            clients=load.clients,
            rate_hz=load.rate_hz,
            duration_s=options.seconds,
            warm_s=options.warm_seconds,
            timeout_s=options.timeout_s,
            seed=options.seed,
        )

    def _wrk_orders(self, requests: _Requests) -> WrkOrders:
        options = self._options
        return WrkOrders(
            url=self._target.url,
            headers=self._target.headers,
            bodies_file=requests.bodies_file,
            duration_s=options.seconds,
            warm_s=options.warm_seconds,
            timeout_s=options.timeout_s,
        )


def run_bench(options: BenchOptions) -> int:
    """Run every load, print the table, and return the exit status. Raises `SetupError`."""
    loads = list_loads(options)
    results: list[LoadResult] = []
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as folder:
        bench = _Bench(options, Path(folder))
        for texts in dict.fromkeys(options.texts):
            bench.prepare(texts, options.batch)
            if options.bulk_clients and options.bulk_batch != options.batch:
                bench.prepare(texts, options.bulk_batch)
        for number, load in enumerate(loads, 1):
            click.echo(f"{number}/{len(loads)}: {load.texts}, {load.name}", err=True)
            results += bench.measure(load)
        click.echo(f"{options.url}, model {bench.model}\n{format_table(results)}")
        if options.output is not None:
            _write_report(options, bench.model, results)
    return int(any(result.errors or result.refusal is not None for result in results))


def list_loads(options: BenchOptions) -> list[BenchLoad]:
    """Return the loads of the options: for each text set the closed loops, then the open loops."""
    loads: list[BenchLoad] = []
    for texts in dict.fromkeys(options.texts):
        loads += [BenchLoad(texts, options.batch, clients=clients) for clients in options.clients]
        loads += [BenchLoad(texts, options.batch, rate_hz=rate_hz) for rate_hz in options.rates_hz]
    return loads


def _write_report(options: BenchOptions, model: str, results: Sequence[LoadResult]) -> None:
    assert options.output is not None
    options.output.mkdir(parents=True, exist_ok=True)
    hidden = {"api_key", "output"}
    settings = {name: value for name, value in asdict(options).items() if name not in hidden}
    write_json(options.output / JSON_FILE, results, {**settings, "model": model})
    written = [options.output / JSON_FILE]
    if can_plot() and draw_latencies(options.output / PLOT_FILE, results):
        written.append(options.output / PLOT_FILE)
    for path in written:
        click.echo(f"written: {path}")
