"""The run of `vecmill bench`: every load, one after the other, then the report."""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from vecmill.errors import InvalidConfig, ServerFailed
from vecmill_server.bench.generator import Orders, run_generator
from vecmill_server.bench.load_results import (
    JSON_FILE,
    OK,
    PLOT_FILE,
    BenchLoad,
    LoadResult,
    can_plot,
    draw_latencies,
    format_table,
    write_json,
)
from vecmill_server.bench.request_sets import (
    MAX_TEXTS,
    REQUESTS,
    ServerApi,
    count_bytes,
    make_bodies,
    read_texts,
)
from vecmill_server.bench.target import (
    CheckedResponse,
    MeasuredServer,
    find_model,
    send_test_request,
    wait_until_idle,
)

# The test requests, and the time for them.
_TEST_REQUESTS, _TEST_S = 32, 5.0
# A server with more tokens than that for each byte of the texts counts something else, such as characters.
_MAX_TOKENS_PER_BYTE, _SPECIAL_TOKENS = 0.8, 3


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
    """The bodies of a text set in a file, and the first body.

    `tokens` is the mean number of tokens of a request. `encoding` is that of the embeddings in the responses.
    `idle_s` is the time of the response to the first body when the server had no load.
    """

    bodies_file: Path
    first: bytes
    tokens: float | None
    encoding: str | None
    idle_s: float


class _Bench:
    """The loads on one server, with the bodies of their requests in `folder`."""

    def __init__(self, options: BenchOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._target = MeasuredServer.of(options.url, options.api, options.api_key)
        # TEI serves one model, which its requests do not name.
        names_model = options.api is not ServerApi.TEI_RERANK
        self.model = options.model or (find_model(self._target) if names_model else "")
        self._made: dict[tuple[str, int], _Requests] = {}

    def measure(self, load: BenchLoad) -> Sequence[LoadResult]:
        """Run a load, and the bulk clients beside it. Give the result of each when the server is idle."""
        options = self._options
        if not options.bulk_clients:
            found = [self._run(load)]
        else:
            bulk = BenchLoad(load.texts, options.bulk_batch, clients=options.bulk_clients)
            with ThreadPoolExecutor(1) as pool:
                beside = pool.submit(self._run, bulk)
                found = [self._run(load), beside.result()]
        self._wait_until_idle(load)
        return found

    def _run(self, load: BenchLoad) -> LoadResult:
        requests = self._made[load.texts, load.texts_per_request]
        found = run_generator(self._orders(requests, load), load)
        return replace(found, tokens_per_request=requests.tokens, encoding=requests.encoding)

    def _wait_until_idle(self, load: BenchLoad) -> None:
        texts = load.texts_per_request
        requests = self._made[load.texts, texts]
        wait_until_idle(self._target, requests.first, texts, requests.idle_s, self._options.timeout_s)

    def prepare(self, texts: str, texts_per_request: int) -> None:
        """Make the bodies of a text set, and send some of them to the server. Raises `ServerFailed`."""
        options = self._options
        count = max(texts_per_request, min(MAX_TEXTS, REQUESTS * texts_per_request))
        drawn = read_texts(texts, count, options.seed)
        bodies = make_bodies(options.api, self.model, drawn, texts_per_request, options.encoding)
        file = self._folder / f"bodies-{len(self._made)}"
        file.write_bytes(b"".join(body + b"\n" for body in bodies))
        found = self._send_test_requests(bodies, texts_per_request)
        sizes = {
            number: count_bytes(
                options.api, drawn[number * texts_per_request : (number + 1) * texts_per_request]
            )
            for number in found
        }
        tokens = estimate_tokens(found, bodies, sizes, texts_per_request)
        first = next(iter(found.values()))
        requests = _Requests(file, bodies[0], tokens, first.encoding, first.seconds)
        self._made[texts, texts_per_request] = requests

    def _send_test_requests(self, bodies: Sequence[bytes], texts: int) -> Mapping[int, CheckedResponse]:
        """Return the responses with status 200 by the number of the body. The first body is sent twice."""
        ends_at = time.monotonic() + _TEST_S
        found: dict[int, CheckedResponse] = {}
        statuses: set[int] = set()
        for number in (0, *range(min(_TEST_REQUESTS, len(bodies)))):
            response = send_test_request(self._target, bodies[number], texts, self._options.timeout_s)
            statuses.add(response.status)
            if response.status == OK:
                found[number] = response
            if found and time.monotonic() > ends_at:
                break
        if not found:
            raise ServerFailed(f"{self._target.url} answered all test requests with {min(statuses)}.")
        return found

    def _orders(self, requests: _Requests, load: BenchLoad) -> Orders:
        options = self._options
        return Orders(
            self._target,
            bodies_file=str(requests.bodies_file),
            clients=load.clients,
            rate_hz=load.rate_hz,
            duration_s=options.seconds,
            warm_s=options.warm_seconds,
            timeout_s=options.timeout_s,
            seed=options.seed,
        )


def estimate_tokens(
    found: Mapping[int, CheckedResponse],
    bodies: Sequence[bytes],
    text_bytes: Mapping[int, int],
    texts_per_request: int,
) -> float | None:
    """Return the mean tokens of all bodies, from those that the server counted for some of them.

    `text_bytes` has the bytes of the texts in each of these bodies. Returns `None` if the server counted no
    tokens, or so many that it counted something else.
    """
    counted = [response.tokens for response in found.values()]
    known = [tokens for tokens in counted if tokens is not None]
    most = sum(text_bytes.values()) * _MAX_TOKENS_PER_BYTE + _SPECIAL_TOKENS * texts_per_request * len(found)
    if len(known) < len(counted) or sum(known) > most:
        return None
    tokens_per_byte = sum(known) / sum(len(bodies[number]) for number in found)
    return tokens_per_byte * sum(map(len, bodies)) / len(bodies)


def run_bench(options: BenchOptions) -> int:
    """Run every load, print the table, and return the exit status. Raises `SetupError`.

    The results are written after each load. The table has all loads that ended, also after an error.
    """
    loads = list_loads(options)
    results: list[LoadResult] = []
    load_average = os.getloadavg()
    _make_output(options.output)
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as folder:
        bench = _Bench(options, Path(folder))
        for texts in dict.fromkeys(options.texts):
            bench.prepare(texts, options.batch)
            if options.bulk_clients and options.bulk_batch != options.batch:
                bench.prepare(texts, options.bulk_batch)
        try:
            for number, load in enumerate(loads, 1):
                click.echo(f"{number}/{len(loads)}: {load.texts}, {load.name}", err=True)
                results += bench.measure(load)
                if options.output is not None:
                    _write_json(options, bench.model, results, load_average)
        finally:
            if results:
                _print_report(options, bench.model, results)
    return int(any(result.errors or result.refusal or result.failure for result in results))


def _make_output(output: Path | None) -> None:
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            (output / JSON_FILE).touch()
        except OSError as error:
            raise InvalidConfig(f"--output {output} cannot be written: {error}") from error


def list_loads(options: BenchOptions) -> list[BenchLoad]:
    """Return the loads of the options: for each text set the closed loops, then the open loops."""
    loads: list[BenchLoad] = []
    for texts in dict.fromkeys(options.texts):
        loads += [BenchLoad(texts, options.batch, clients=clients) for clients in options.clients]
        loads += [BenchLoad(texts, options.batch, rate_hz=rate_hz) for rate_hz in options.rates_hz]
    return loads


def _write_json(
    options: BenchOptions, model: str, results: Sequence[LoadResult], load_average: Sequence[float]
) -> None:
    assert options.output is not None
    hidden = {"api_key", "output"}
    settings = {name: value for name, value in asdict(options).items() if name not in hidden}
    write_json(options.output / JSON_FILE, results, {**settings, "model": model}, load_average)


def _print_report(options: BenchOptions, model: str, results: Sequence[LoadResult]) -> None:
    named = f", model {model}" if model else ""
    encodings = dict.fromkeys(result.encoding for result in results if result.encoding)
    form = f", embeddings as {' and '.join(encodings)}" if encodings else ""
    click.echo(f"{options.url}{named}{form}\n{format_table(results)}")
    if options.output is None:
        return
    written = [options.output / JSON_FILE]
    if can_plot() and draw_latencies(options.output / PLOT_FILE, results):
        written.append(options.output / PLOT_FILE)
    for path in written:
        click.echo(f"written: {path}")
