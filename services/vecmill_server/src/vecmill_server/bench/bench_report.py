"""The results of a benchmark as a table, a JSON document and a plot."""

import json
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vecmill.hardware.cores import available_cores
from vecmill.hardware.processor import processor_name
from vecmill_server.bench.load import OK, LoadResult

JSON_FILE, PLOT_FILE = "bench.json", "latency.png"

_LATENCIES = ("min", "mean", "p50", "p90", "p95", "p99", "max")
_COLUMNS = (
    "texts",
    "a request",
    "load",
    "requests",
    "requests/s",
    "texts/s",
    "tokens/s",
    "errors",
    *_LATENCIES,
    "generator",
)
_INCHES, _DOTS_PER_INCH = (8.0, 5.0), 120


def format_table(results: Sequence[LoadResult]) -> str:
    """Return a table with a line for each result. Latencies are in milliseconds.

    "requests" is the number of latencies. A percentile that has too few latencies above it is left out. A
    result that measured the generator has no figures. The reason is below the table, with the errors.
    """
    rows = [_COLUMNS, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for result in results:
        lines += [f"{result.load.texts}, {result.load.name}: {note}." for note in _list_notes(result)]
    return "\n".join(lines)


def _list_notes(result: LoadResult) -> Iterator[str]:
    if result.refusal is not None:
        yield f"no figures, because {result.refusal}"
    elif result.failure is not None:
        yield result.failure
    if result.errors:
        yield _count_statuses(result.statuses)
    if result.oldest_open_s > result.percentiles_s.get("max", 0.0):
        yield f"open at the end: {result.open_at_end} requests, the oldest for {result.oldest_open_s:.1f} s"


def _cells(result: LoadResult) -> tuple[str, ...]:
    load = result.load
    head = (load.texts, f"{load.texts_per_request}", load.name, str(result.statuses.get(OK, 0)))
    generator = f"{result.generator} {result.processor_share:.0%}"
    if load.rate_hz is not None:
        generator += f", {result.delay_p50_s * 1000:.1f} ms late"
    if result.refusal is not None:
        return (*head, "-", "-", "-", str(result.errors), *("-" for _ in _LATENCIES), generator)
    tokens = "-" if result.tokens_per_s is None else f"{result.tokens_per_s:.0f}"
    rates = (f"{result.requests_per_s:.1f}", f"{result.texts_per_s:.1f}", tokens, str(result.errors))
    found = result.list_latencies_s()
    times = (f"{found[name] * 1000:.1f}" if name in found else "-" for name in _LATENCIES)
    return (*head, *rates, *times, generator)


def _count_statuses(statuses: Mapping[int, int]) -> str:
    names = {0: "broken connections", -1: "requests without an answer in time"}
    found = (
        f"{count} {names.get(status, f'with status {status}')}" for status, count in sorted(statuses.items())
    )
    return ", ".join(found)


def write_json(
    path: Path, results: Sequence[LoadResult], settings: Mapping[str, Any], load_average: Sequence[float]
) -> None:
    """Write the results, the settings, and the machine of the generator with its load before the run."""
    document = {
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": dict(settings),
        "generator": {
            "vecmill_server": version("vecmill-server"),
            "python": platform.python_version(),
            "processor": processor_name(),
            "cores": available_cores(),
            "load_average_before": load_average,
        },
        "results": [result.document() for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def can_plot() -> bool:
    """Return whether matplotlib is installed (`vecmill[optimize]`)."""
    return find_spec("matplotlib") is not None


def draw_latencies(path: Path, results: Sequence[LoadResult]) -> bool:
    """Draw p50 and p99 of the latency against the answered requests per second, a line for each text set.

    Returns `False`, without a file, if no result has figures.
    """
    # pyplot would keep global state and look for a window system.
    from matplotlib.figure import Figure

    series = _series(results)
    if not series:
        return False
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for index, (name, found) in enumerate(series.items()):
        ordered = sorted(found, key=lambda result: result.requests_per_s)
        rates = [result.requests_per_s for result in ordered]
        for percentile, style in (("p50", "-"), ("p99", "--")):
            # A percentile that is not a number is left out.
            times = [result.list_latencies_s().get(percentile, math.nan) * 1000 for result in ordered]
            axes.plot(rates, times, style, marker="o", color=f"C{index}", label=f"{name}, {percentile}")
    axes.set_yscale("log")
    axes.set_xlabel("requests answered per second")
    axes.set_ylabel("latency, ms")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path)
    return True


def _series(results: Sequence[LoadResult]) -> dict[str, list[LoadResult]]:
    series: dict[str, list[LoadResult]] = {}
    for result in results:
        if result.refusal is None and result.percentiles_s:
            load = result.load
            loop = "open loop" if load.clients is None else "closed loop"
            name = f"{load.texts} x {load.texts_per_request}, {loop}"
            series.setdefault(name, []).append(result)
    return series
