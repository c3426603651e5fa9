"""Where the time of a request goes under load: its spans, their shares, and what they leave out.

The load of 32 clients comes from wrk. Beside it, one client sends requests with a `traceparent` of its own
and takes the time of each, so that the spans are compared with the time that a client waits.

make bench-trace
"""

import http.client
import secrets
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.before_after import command_of
from bench.generator import run_load, write_bodies
from bench.program import make_parser, start
from bench.report import Figure
from bench.rigs import shuffled
from support.collector import Collector, Received, collect
from support.server import live_server
from support.source_tree import ROOT
from support.texts import short_texts

SEED = 20_261_122
TEXTS = 3_000
CONNECTIONS = 32
WARM_UP_S = 2
PROMISED_GAP = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the client: the id of its trace, and the nanoseconds until the response was read."""

    trace_id: str
    waited_ns: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, seconds=15)
    parser.add_argument("--share", type=float, default=0.05, help="The share of the load that is traced.")
    parser.add_argument("--engine", default="onnx", help="The engine of the server.")
    texts = shuffled(short_texts(SEED, TEXTS), SEED)
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        collector = run.stack.enter_context(collect())
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(options.share),
            "OTEL_BSP_MAX_QUEUE_SIZE": "100000",
        }
        command = ("env", *(f"{name}={value}" for name, value in variables.items()), *command_of(ROOT)[1:])
        serving = ("--engine", options.engine, "--tracing", "--no-access-log")
        with live_server(run.folder, arguments=serving, command=command) as server:
            bodies = write_bodies(run.folder / "bodies", texts)
            run_load(server.url, bodies, connections=CONNECTIONS, duration_s=WARM_UP_S)
            asked, rate = _ask_under_load(server.url, bodies, options.seconds)
        # The server has ended, and sent its last spans.
        roots = {span.trace_id: span for span in collector.roots("POST /v1/embeddings")}
        children = _children(collector)
    whole = [root for root in roots.values() if root.span_id in children]
    print(f"{rate:.0f} requests/s; {len(whole)} traces, {len(asked)} of them of the client that takes times")
    _print_shares(whole, children)
    figures = _figures(whole, children, asked, roots)
    return run.finish("trace", f"{CONNECTIONS} clients, short texts, {options.engine}", figures)


def _ask_under_load(url: str, bodies: Path, seconds: int) -> tuple[list[Asked], float]:
    """Send requests, one after another, while the load lasts; they and the rate of the load."""
    asked: list[Asked] = []
    is_over = threading.Event()

    def ask() -> None:
        client = http.client.HTTPConnection(urlsplit(url).netloc)
        lines = bodies.read_text("utf-8").splitlines()
        while not is_over.wait(0.02):
            asked.append(_ask(client, lines[len(asked) % len(lines)].encode()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        found = run_load(url, bodies, connections=CONNECTIONS, duration_s=seconds)
    finally:
        is_over.set()
        thread.join()
    return asked, found.rate


def _ask(client: http.client.HTTPConnection, body: bytes) -> Asked:
    trace_id = secrets.token_hex(16)
    headers = {"content-type": "application/json", "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}
    began = time.monotonic_ns()
    client.request("POST", "/v1/embeddings", body, headers)
    answer = client.getresponse()
    answer.read()
    waited_ns = time.monotonic_ns() - began
    assert answer.status == 200
    return Asked(trace_id, waited_ns)


def _children(collector: Collector) -> Mapping[str, list[Received]]:
    """The spans directly inside each span."""
    found: dict[str, list[Received]] = defaultdict(list)
    for span in collector.spans:
        if span.parent_id:
            found[span.parent_id].append(span)
    return found


def _print_shares(roots: Sequence[Received], children: Mapping[str, list[Received]]) -> None:
    total_ns = sum(root.duration_ns for root in roots)
    by_name: dict[str, list[int]] = defaultdict(list)
    for root in roots:
        for child in sorted(children[root.span_id], key=lambda span: span.began_ns):
            by_name[child.name].append(child.duration_ns)
            for inner in children.get(child.span_id, []):
                by_name[f"  {inner.name}"].append(inner.duration_ns)
    print(f"\n{'span':20} {'median us':>10} {'p99 us':>10} {'share':>7}")
    for name, found in by_name.items():
        share = f"{sum(found) / total_ns:7.1%}"
        print(f"{name:20} {statistics.median(found) / 1e3:10.1f} {_p99(found) / 1e3:10.1f} {share}")


def _figures(
    roots: Sequence[Received],
    children: Mapping[str, list[Received]],
    asked: Sequence[Asked],
    by_trace: Mapping[str, Received],
) -> list[Figure]:
    gaps = [
        abs(root.duration_ns - sum(child.duration_ns for child in children[root.span_id])) / root.duration_ns
        for root in roots
    ]
    covered = [by_trace[one.trace_id].duration_ns / one.waited_ns for one in asked]
    return [
        Figure("time of a request, its span", "ms", tuple(root.duration_ns / 1e6 for root in roots)),
        Figure("gap of the sum of its spans, median", "", (statistics.median(gaps),), PROMISED_GAP),
        Figure("gap of the sum of its spans, p99", "", (_p99(gaps),), PROMISED_GAP),
        Figure("its span / the time of the client", "", tuple(covered)),
    ]


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


if __name__ == "__main__":
    sys.exit(main())
