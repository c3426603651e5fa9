"""The latency of a text classifier by number of cores: mean and deviation over 1,000 requests.

    make bench-endpoint

Mantis's article ("Why we're switching to Hugging Face Inference Endpoints, and maybe you should too") has
this table for a RoBERTa that classifies, on endpoints of 1, 2, 4 and 8 cores. One client sends 1,000
requests. The article does not state the length of its texts. The texts here have 128 tokens.

Each server is pinned to the first processors of the machine. The requests come from the generator of
`vecmill bench`, which runs on any processor. Rows for which the machine has too few cores are not measured.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.classifier_inputs import Inputs, make_inputs, make_texts, save_classifier
from bench.generator import predict_target, send_requests
from bench.processors import list_processors
from bench.program import make_parser, start
from bench.published.articles import ENDPOINT, ENDPOINT_REQUESTS, MANTIS, PublishedLatency
from bench.published.report import NOT_MEASURED, Report, ahead, count_cores, latency_figures, times_ms
from bench.published.servers import (
    FASTAPI,
    GUNICORN,
    NOT_INSTALLED,
    SEED,
    FastApiOptions,
    exact_and_tuned,
    fastapi_server,
    name_plan,
    start_vecmill,
    vecmill_name,
    write_requests,
)
from bench.report import Figure, markdown_table, ratios_of
from support.server import NotStarted
from vecmill_server.bench.load_results import LoadResult

TOKENS, TEXTS = 128, 16
WARM_REQUESTS = 20
TIMEOUT_S = 60.0
TITLE = "A RoBERTa classifier by number of cores: the latency over 1,000 requests"


@dataclass(slots=True)
class Row:
    """The results with a number of cores: by contestant, for each round."""

    cores: int
    found: dict[str, list[LoadResult]] = field(default_factory=dict)

    @property
    def published(self) -> PublishedLatency:
        return ENDPOINT[self.cores]


def start_servers(
    stack: ExitStack, folder: Path, inputs: Inputs, processors: Sequence[int]
) -> Mapping[str, str]:
    """Start each server on these processors; return the URLs by name."""
    urls: dict[str, str] = {}
    if GUNICORN.exists():
        server = fastapi_server(folder / "fastapi", inputs, FastApiOptions(), processors)
        urls[FASTAPI] = stack.enter_context(server)
    for plan in exact_and_tuned():
        try:
            server_url = start_vecmill(stack, folder.parent / "served", inputs, plan, processors).url
        except NotStarted as refusal:  # random weights may lose more than real ones
            print(f"{name_plan(plan)} is left out: {str(refusal).strip().splitlines()[-1]}", flush=True)
            continue
        urls[vecmill_name(plan)] = server_url
    return urls


def measure_row(row: Row, inputs: Inputs, folder: Path, requests: int, rounds: int) -> None:
    """Measure all servers in turn, on the cores of `row`."""
    folder.mkdir()
    bodies = write_requests(folder / "bodies", [[text] for text in inputs.texts[TOKENS]])
    with ExitStack() as stack:
        urls = start_servers(stack, folder, inputs, list_processors()[: row.cores])
        for name, url in urls.items():
            row.found[name] = []
            _send(url, bodies, WARM_REQUESTS)
        for _ in range(rounds):
            for name, url in urls.items():
                row.found[name].append(_send(url, bodies, requests))
                print(f"{count_cores(row.cores)}, {name}: {describe(row.found[name][-1:])}", flush=True)


def _send(url: str, bodies: Path, requests: int) -> LoadResult:
    return send_requests(predict_target(url), bodies, connections=1, requests=requests, timeout_s=TIMEOUT_S)


def describe(results: Sequence[LoadResult]) -> str:
    """Return mean and standard deviation in ms, and the seconds of all requests, in the article's form."""
    mean_ms, stdev_ms = (median(times_ms(results, name)) for name in ("mean", "stdev"))
    return f"{mean_ms:.1f} ± {stdev_ms:.1f} ({median(each.elapsed_s for each in results):.0f} s)"


def describe_published(found: PublishedLatency) -> str:
    """Return the published figures in the same form."""
    if found.stdev_ms is None:
        return f"{found.mean_ms:g}"
    return f"{found.mean_ms:g} ± {found.stdev_ms:g} ({found.total_s:g} s)"


def list_names(rows: Sequence[Row]) -> list[str]:
    """Return the names of all contestants."""
    return list(dict.fromkeys(name for row in rows for name in row.found))


def write_rows(rows: Sequence[Row]) -> str:
    """Return a table with a line for each number of cores."""
    names = list_names(rows)
    headings = [
        "cores",
        "published: endpoint, ms",
        "published: container, ms",
        *(f"{name}, ms" for name in names),
    ]
    ours = [name for name in names if name != FASTAPI]
    headings += [f"{FASTAPI} / {name}" for name in ours]
    return markdown_table(headings, [_cells(row, names, ours) for row in rows])


def _cells(row: Row, names: Sequence[str], ours: Sequence[str]) -> list[str]:
    container_ms = row.published.container_ms
    cells = [
        str(row.cores),
        describe_published(row.published),
        "-" if container_ms is None else f"{container_ms:g}",
    ]
    cells += [describe(row.found[name]) if name in row.found else NOT_MEASURED for name in names]
    return [*cells, *(_ratio(row, name) for name in ours)]


def _ratio(row: Row, name: str) -> str:
    if name not in row.found or FASTAPI not in row.found:
        return "-"
    return f"{median(mean_ratios(row, name)):.2f}"


def mean_ratios(row: Row, name: str) -> Sequence[float]:
    """Return the mean latency of transformers over that of `name`, round by round."""
    return ratios_of(times_ms(row.found[FASTAPI], "mean"), times_ms(row.found[name], "mean"))


def figures_of(rows: Sequence[Row]) -> list[Figure]:
    """Return the latencies of each row, and the promise that vecmill is ahead."""
    figures: list[Figure] = []
    for row in rows:
        for name, results in row.found.items():
            label = f"{count_cores(row.cores)}: {name}"
            figures += latency_figures(label, results, ("mean", "stdev", "p50", "p99", "max"))
            figures.append(Figure(f"{label}, all requests", "s", tuple(each.elapsed_s for each in results)))
            if name != FASTAPI and FASTAPI in row.found:
                figures.append(ahead(f"{count_cores(row.cores)}: {FASTAPI} / {name}", mean_ratios(row, name)))
    return figures


def draw(rows: Sequence[Row], axes: Any) -> None:
    """Draw mean and standard deviation against the number of cores."""
    points: dict[str, list[tuple[int, float, float]]] = {
        "published: endpoint, other hardware": [
            (cores, found.mean_ms, found.stdev_ms or 0.0) for cores, found in ENDPOINT.items()
        ]
    }
    for name in list_names(rows):
        points[name] = [
            (row.cores, _median_ms(row, name, "mean"), _median_ms(row, name, "stdev"))
            for row in rows
            if name in row.found
        ]
    for label, found in points.items():
        cores, means, deviations = zip(*found, strict=True)
        axes.errorbar(cores, means, yerr=deviations, marker="o", capsize=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="cores", ylabel="latency, ms: mean and standard deviation")
    axes.set_xticks(list(ENDPOINT), labels=map(str, ENDPOINT))
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)


def _median_ms(row: Row, name: str, part: str) -> float:
    return median(times_ms(row.found[name], part))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--requests", type=int, default=ENDPOINT_REQUESTS, help="Of each server in a round.")
    parser.add_argument("--cores", type=int, nargs="+", choices=list(ENDPOINT), default=list(ENDPOINT))
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        rows = [Row(cores) for cores in options.cores]
        model = save_classifier(run.folder / "model", seed=SEED, architecture="Roberta")
        inputs = make_inputs(model, {TOKENS: make_texts(SEED, TOKENS, TEXTS)})
        for row in sorted(rows, key=lambda row: row.cores, reverse=True):  # the first start takes long on few
            if row.cores <= len(list_processors()):
                place = run.folder / f"{row.cores}-cores"
                measure_row(row, inputs, place, options.requests, options.rounds)
    missing = "" if GUNICORN.exists() else f"\n\n{FASTAPI}: {NOT_INSTALLED}"
    page = (
        f"One client, {options.requests} requests of {TOKENS} tokens, {options.rounds} rounds: mean ± "
        f"standard deviation (time of all requests). Published: {MANTIS}, texts of unknown length.{missing}"
        f"\n\n{write_rows(rows)}"
    )
    settings = run.settings | {"tokens": TOKENS}
    report = Report("endpoint", TITLE, page, figures_of(rows), settings, lambda axes: draw(rows, axes))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
