"""DistilBERT by cores, tokens and batch size: 192 points, vecmill over HTTP and transformers' pipeline.

    make bench-grid
    make bench-distilbert    (one client, one text a request, on two cores; every engine and precision)

Hugging Face measured these points in January 2022 ("Case Study: Millisecond Latency using Hugging Face
Infinity and modern CPUs"): a DistilBERT that classifies, on 1, 2, 4 and 8 cores, with 8 to 512 tokens and
batches of 1 to 32 texts. Their article has the throughput of 8 points, which are beside those measured here.

One client sends one request after another. Server and pipeline are pinned to the same processors and take
turns. wrk, the client, runs on any processor. Points for which the machine has too few cores are left out.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from bench.classifier_inputs import Inputs, load_pipeline, make_inputs, make_texts, save_classifier
from bench.generator import run_closed_loop
from bench.processors import count_physical_cores, list_processors
from bench.program import make_parser, start
from bench.published.articles import (
    FIGURE_BATCH,
    FIGURE_CORES,
    GRID_BATCHES,
    GRID_CORES,
    GRID_LENGTHS,
    HUGGING_FACE,
    HUGGING_FACE_INFINITY,
    HUGGING_FACE_TRANSFORMERS,
)
from bench.published.report import NOT_MEASURED, Report, ahead, count_cores
from bench.published.servers import (
    SEED,
    exact_and_tuned,
    name_plan,
    plans_here,
    request_body,
    start_vecmill,
    vecmill_name,
    wait_for_left_requests,
    write_requests,
)
from bench.report import Figure, markdown_table, ratios_of
from bench.rigs import remote_process
from support.plain_http import post
from support.server import NotStarted
from vecmill.values.engine_plan import EnginePlan
from vecmill_server.bench.load_results import PERCENTILES, least_latencies, summarise_latencies

PIPELINE = "pipeline"
TEXTS = 32
# Of each point at least this number of requests, however long one takes.
LEAST_CALLS = 5
# From one chosen point to the next. It shares no factor with the lengths of the axes.
STRIDE = 37
STATISTICS = ("min", "mean", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Processors, tokens of each text, and texts of each request."""

    cores: int
    tokens: int
    batch: int

    @property
    def name(self) -> str:
        return f"{count_cores(self.cores)}, {self.tokens} tokens, batch {self.batch}"

    def published(self) -> tuple[float, float] | None:
        """The article's requests per second: of its server and of its transformers."""
        if (self.cores, self.batch) != (FIGURE_CORES, FIGURE_BATCH):
            return None
        return HUGGING_FACE_INFINITY[self.tokens], HUGGING_FACE_TRANSFORMERS[self.tokens]


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latency of one contestant in one round, as statistics in seconds, and the number of requests."""

    seconds: Mapping[str, float]
    requests: int

    @property
    def rate(self) -> float:
        """Requests per second of the one client, which waits for nothing but responses."""
        return 1 / self.seconds["mean"]


Measure = Callable[[Point], Latencies]
Results = dict[Point, dict[str, list[Latencies]]]
"""By point, by contestant, for each round."""


def list_points(
    cores: Sequence[int],
    count: int | None = None,
    *,
    lengths: Sequence[int] = GRID_LENGTHS,
    batches: Sequence[int] = GRID_BATCHES,
) -> list[Point]:
    """Return the points of the grid for these numbers of cores, or `count` of them, spread over the grid."""
    points = [Point(*each) for each in product(cores, lengths, batches)]
    if count is None or count >= len(points):
        return points
    return sorted(points[index * STRIDE % len(points)] for index in range(count))


class PinnedPipeline:
    """transformers' pipeline on some processors, in a process of its own."""

    def __init__(self, model: Path, processors: Sequence[int]) -> None:
        os.sched_setaffinity(0, processors)
        self._pipeline = load_pipeline(model)
        import torch

        torch.set_num_threads(len(processors))

    def latencies_s(self, groups: Sequence[Sequence[str]], seconds: float) -> list[float]:
        """Return the latency of each call, for `seconds` and for at least `LEAST_CALLS` calls."""
        self._call(groups[0])
        found: list[float] = []
        ends_at = time.perf_counter() + seconds
        while time.perf_counter() < ends_at or len(found) < LEAST_CALLS:
            began = time.perf_counter()
            self._call(groups[len(found) % len(groups)])
            found.append(time.perf_counter() - began)
        return found

    def _call(self, texts: Sequence[str]) -> None:
        self._pipeline(texts[0] if len(texts) == 1 else list(texts), batch_size=len(texts))


@dataclass(slots=True)
class Grid:
    """The model, the texts by length, and the results so far."""

    folder: Path
    inputs: Inputs
    processors: Sequence[int]
    seconds: int
    plans: Sequence[EnginePlan]
    results: Results = field(default_factory=dict)

    def groups(self, point: Point) -> list[Sequence[str]]:
        """Return the texts of each request."""
        texts = self.inputs.texts[point.tokens]
        return [texts[first : first + point.batch] for first in range(0, len(texts), point.batch)]

    def measure(self, points: Sequence[Point], rounds: int) -> None:
        """Measure points that have the same cores."""
        if not points:
            return
        with ExitStack() as stack:
            contestants = self._start(stack, points[0].cores)
            for point in points:
                found = self.results[point] = {name: [] for name in contestants}
                for _ in range(rounds):
                    for name, measure in contestants.items():
                        found[name].append(measure(point))
                rates = {name: median(each.rate for each in rounds_) for name, rounds_ in found.items()}
                told = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
                print(f"{point.name}, requests/s: {told}", flush=True)

    def _start(self, stack: ExitStack, cores: int) -> dict[str, Measure]:
        mine = self.processors[:cores]
        ask = stack.enter_context(remote_process(PinnedPipeline, self.inputs.model, mine))

        def call_pipeline(point: Point) -> Latencies:
            found = ask("latencies_s", self.groups(point), self.seconds)
            return Latencies(summarise_latencies(found), len(found))

        contestants: dict[str, Measure] = {PIPELINE: call_pipeline}
        for plan in self.plans:
            try:
                server = start_vecmill(stack, self.folder / "served", self.inputs, plan, mine)
            except NotStarted as refusal:  # random weights may lose more than real ones
                print(f"{name_plan(plan)} is left out: {str(refusal).strip().splitlines()[-1]}", flush=True)
                continue
            contestants[vecmill_name(plan)] = self._asking(server.url)
        return contestants

    def _asking(self, url: str) -> Measure:
        def ask_server(point: Point) -> Latencies:
            groups = self.groups(point)
            bodies = write_requests(self.folder / "bodies", groups)
            seconds = max(self.seconds, math.ceil(LEAST_CALLS * time_request(url, groups[0])))
            found = run_closed_loop(
                url, bodies, connections=1, duration_s=seconds, route="/predict", timeout_s=600
            )
            wait_for_left_requests(url, bodies)
            return Latencies(found.percentiles_s, sum(found.statuses.values()))

        return ask_server


def time_request(url: str, texts: Sequence[str]) -> float:
    """Return the seconds of the second of two equal requests."""
    post(f"{url}/predict", request_body(texts))
    began = time.perf_counter()
    post(f"{url}/predict", request_body(texts))
    return time.perf_counter() - began


def write_points(results: Results) -> str:
    """Return a table with a line for each point: requests per second, and the ratios to the pipeline."""
    names = [name for name in list_names(results) if name != PIPELINE]
    headings = ["cores", "tokens", "batch", f"{PIPELINE}, requests/s"]
    for name in names:
        headings += [f"{name}, requests/s", f"{name} / {PIPELINE}", f"{name}, p50 and p99, ms"]
    headings += ["published: Infinity", "published: transformers", "published ratio"]
    return markdown_table(headings, [_point_cells(point, found, names) for point, found in results.items()])


def list_names(results: Results) -> list[str]:
    """Return the names of all contestants. A server may be refused on some numbers of cores."""
    return list(dict.fromkeys(name for found in results.values() for name in found))


def _point_cells(point: Point, found: Mapping[str, Sequence[Latencies]], names: Sequence[str]) -> list[str]:
    theirs = [each.rate for each in found[PIPELINE]]
    cells = [str(point.cores), str(point.tokens), str(point.batch), f"{median(theirs):.1f}"]
    for name in names:
        if name not in found:
            cells += [NOT_MEASURED, "-", "-"]
        else:
            ours = found[name]
            rates = [each.rate for each in ours]
            cells += [f"{median(rates):.1f}", f"{median(ratios_of(rates, theirs)):.2f}"]
            cells.append(", ".join(write_times(ours, ("p50", "p99"))))
    known = point.published()
    return cells + (
        ["-"] * 3 if known is None else [f"{known[0]:g}", f"{known[1]:g}", f"{known[0] / known[1]:.2f}"]
    )


def write_times(rounds: Sequence[Latencies], parts: Sequence[str]) -> list[str]:
    """Return statistics of the latency in ms. A percentile of too few requests is left out."""
    return [
        f"{median(each.seconds[part] for each in rounds) * 1e3:.1f}" if has_part(rounds, part) else "-"
        for part in parts
    ]


def has_part(rounds: Sequence[Latencies], part: str) -> bool:
    """Return whether each round has enough requests for a statistic."""
    return all(
        each.requests >= least_latencies(percentile)
        for each in rounds
        for percentile in PERCENTILES
        if part == f"p{percentile}"
    )


def write_latencies(results: Results) -> str:
    """Return a table with a line for each point and contestant: the whole latency, in ms."""
    headings = [
        "cores",
        "tokens",
        "batch",
        "contestant",
        "requests",
        "requests/s",
        *(f"{part}, ms" for part in STATISTICS),
    ]
    lines = []
    for point, found in results.items():
        for name, rounds in found.items():
            times = write_times(rounds, STATISTICS)
            requests, rate = sum(each.requests for each in rounds), median(each.rate for each in rounds)
            head = [str(point.cores), str(point.tokens), str(point.batch), name]
            lines.append([*head, str(requests), f"{rate:.1f}", *times])
    return markdown_table(headings, lines)


def figures_of(results: Results) -> list[Figure]:
    """Return the rates and latencies of each point, and the promise that vecmill is ahead."""
    figures: list[Figure] = []
    for point, found in results.items():
        theirs = [each.rate for each in found[PIPELINE]]
        for name, rounds in found.items():
            rates = [each.rate for each in rounds]
            label = f"{point.name}: {name}"
            figures.append(Figure(label, "requests/s", tuple(rates)))
            for part in (part for part in STATISTICS if has_part(rounds, part)):
                times_ms = tuple(each.seconds[part] * 1e3 for each in rounds)
                figures.append(Figure(f"{label}, {part}", "ms", times_ms))
            if name != PIPELINE:
                figures.append(ahead(f"{label} / {PIPELINE}", ratios_of(rates, theirs)))
    return figures


def draw(results: Results, axes: Any) -> None:
    """Draw texts per second against tokens, for one text a request on the largest number of cores."""
    cores = FIGURE_CORES if any(point.cores == FIGURE_CORES for point in results) else max(results).cores
    for name in list_names(results):
        for batch, style in ((GRID_BATCHES[0], "-"), (GRID_BATCHES[-1], "--")):
            line = {
                point.tokens: batch * median(each.rate for each in found[name])
                for point, found in results.items()
                if (point.cores, point.batch) == (cores, batch) and name in found
            }
            if line:
                axes.plot(list(line), list(line.values()), style, marker="o", label=f"{name}, batch {batch}")
    for label, known in (("Infinity", HUGGING_FACE_INFINITY), ("transformers", HUGGING_FACE_TRANSFORMERS)):
        axes.plot(list(known), list(known.values()), ":", marker="x", label=f"published: {label}, batch 1")
    axes.set(xscale="log", yscale="log", xlabel="tokens of a text", ylabel="texts per second")
    axes.set_xticks(GRID_LENGTHS, labels=map(str, GRID_LENGTHS))
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.set_title(
        f"DistilBERT classifier on {count_cores(cores)}; published figures: other hardware", fontsize=9
    )
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize=7)


def is_ahead(found: Mapping[str, Sequence[Latencies]]) -> bool:
    """Return whether vecmill answers more requests a second than the pipeline, with each of its plans."""
    rates = {name: median(each.rate for each in rounds) for name, rounds in found.items()}
    theirs = rates.pop(PIPELINE)
    return bool(rates) and min(rates.values()) > theirs


def describe(processors: Sequence[int], cores: Sequence[int], results: Results) -> str:
    """Return what was measured and what was not, in sentences."""
    ahead_in = sum(map(is_ahead, results.values()))
    whole = len(list_points(GRID_CORES))
    lacking = sorted(set(GRID_CORES) - set(cores))
    return (
        f"{len(results)} of {whole} points, one client. vecmill is ahead in {ahead_in} of them. "
        f"{len(processors)} processors of {count_physical_cores(processors)} physical cores. "
        + (f"{NOT_MEASURED.capitalize()}: {', '.join(map(str, lacking))} cores. " if lacking else "")
        + f"The published figures are of other hardware ({HUGGING_FACE}, 2 physical cores)."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=1, seconds=3)
    parser.add_argument("--points", type=int, help="So many of the points, spread over the grid.")
    parser.add_argument("--cores", type=int, nargs="+", choices=GRID_CORES, default=GRID_CORES)
    parser.add_argument("--lengths", type=int, nargs="+", choices=GRID_LENGTHS, default=GRID_LENGTHS)
    parser.add_argument("--batches", type=int, nargs="+", choices=GRID_BATCHES, default=GRID_BATCHES)
    parser.add_argument("--all-plans", action="store_true", help="Every engine and precision, not two.")
    processors = list_processors()
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        cores = [count for count in options.cores if count <= len(processors)]
        points = list_points(cores, options.points, lengths=options.lengths, batches=options.batches)
        plans = plans_here() if options.all_plans else exact_and_tuned()
        print(f"{len(points)} points", flush=True)
        model = save_classifier(run.folder / "model", seed=SEED)
        lengths = sorted({point.tokens for point in points})
        inputs = make_inputs(model, {length: make_texts(SEED, length, TEXTS) for length in lengths})
        grid = Grid(run.folder, inputs, processors, options.seconds, plans)
        for count in sorted(cores, reverse=True):  # the first start takes long on few cores
            grid.measure([point for point in points if point.cores == count], options.rounds)
    results = dict(sorted(grid.results.items()))
    settings = run.settings | {package: version(package) for package in ("torch", "transformers")}
    tables = (write_points(results), "## Latency", write_latencies(results))
    page = "\n\n".join((describe(processors, cores, results), *tables))
    title = "DistilBERT by cores, tokens and batch size"
    report = Report("grid", title, page, figures_of(results), settings, lambda axes: draw(results, axes))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
