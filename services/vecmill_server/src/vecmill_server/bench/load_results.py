"""The loads on a server and their results: the figures, the table, the JSON document and the plot."""

import json
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.hardware.cores import available_cores
from vecmill.hardware.processor import processor_name

OK = 200
# The statuses of requests without an answer.
BROKEN, UNANSWERED = 0, -1

# Above this share of a core, the generator delays its own requests.
MAX_PROCESSOR_SHARE = 0.85
# An open loop measures its generator if one request in a hundred leaves so late, and so late in proportion to
# the latencies (both 99th percentiles).
MAX_DELAY_S, MAX_DELAY_SHARE = 0.01, 0.1
# The same for the median delay and the median latency.
MAX_MEDIAN_DELAY_S = 0.001

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """A load: `clients` connections in a closed loop, or `rate_hz` requests a second in an open loop.

    `texts` names the text set. `texts_per_request` is the number of texts of each request.
    """

    texts: str
    texts_per_request: int
    clients: int | None = None
    rate_hz: float | None = None

    @property
    def name(self) -> str:
        """A short name for tables and plots."""
        if self.clients is not None:
            return f"{self.clients} client{'s' if self.clients != 1 else ''}"
        return f"{self.rate_hz:g} requests/s"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the generator saw.

    `statuses` counts the requests by HTTP status. `BROKEN` stands for a broken connection, `UNANSWERED` for a
    request whose time was over. `percentiles_s` has min, mean, standard deviation, percentiles and max of
    `latencies_s`, the latencies with status 200 in seconds, and `error_percentiles_s` of the latencies with
    any other status.

    `answered` is the number of responses with status 200 in the counted time. The requests of an open loop
    are counted by the time at which they were due, so their responses may come later; `None` stands for
    as many as `statuses` has. `open_at_end` is the number of requests that had no response at the end of the
    counted time, and `oldest_open_s` the age of the oldest of these.

    `tokens_per_request` is the mean as the server counts, and `encoding` is that of the embeddings.
    `delay_p50_s` and `delay_p99_s` are the delays with which requests of an open loop left. `shortage` says
    which resource the generator lacked.
    """

    load: BenchLoad
    elapsed_s: float
    statuses: Mapping[int, int]
    processor_share: float
    percentiles_s: Mapping[str, float] = field(default_factory=dict)
    latencies_s: Sequence[float] = ()
    error_percentiles_s: Mapping[str, float] = field(default_factory=dict)
    answered: int | None = None
    open_at_end: int = 0
    oldest_open_s: float = 0.0
    delay_p50_s: float = 0.0
    delay_p99_s: float = 0.0
    shortage: str | None = None
    tokens_per_request: float | None = None
    encoding: str | None = None

    @property
    def requests_per_s(self) -> float:
        """Responses with status 200 in the counted time, per second."""
        answered = self.statuses.get(OK, 0) if self.answered is None else self.answered
        return answered / self.elapsed_s

    @property
    def texts_per_s(self) -> float:
        """Texts of responses with status 200, per second."""
        return self.requests_per_s * self.load.texts_per_request

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second as the server counts them, `None` if it does not."""
        return None if self.tokens_per_request is None else self.requests_per_s * self.tokens_per_request

    @property
    def errors(self) -> int:
        """The number of requests without status 200."""
        return sum(count for status, count in self.statuses.items() if status != OK)

    @property
    def failure(self) -> str | None:
        """Why the server failed as a whole, `None` if it answered a request with status 200."""
        if self.statuses.get(OK, 0):
            return None
        return f"no request was answered with status 200 in {self.elapsed_s:.0f} s"

    @property
    def refusal(self) -> str | None:
        """Why the figures may be those of the generator, `None` if they are the server's."""
        if self.shortage is not None:
            return f"the generator could not send all requests: {self.shortage}"
        if self.processor_share > MAX_PROCESSOR_SHARE:
            return (
                f"the generator used {self.processor_share:.0%} of a core and may have been the limit, "
                f"at {sum(self.statuses.values()) / self.elapsed_s:.0f} requests/s"
            )
        if self.delay_p99_s > max(MAX_DELAY_S, MAX_DELAY_SHARE * self.percentiles_s.get("p99", 0.0)):
            return (
                f"one request in a hundred left {self.delay_p99_s * 1000:.0f} ms late or more, because the "
                "generator did not get a core in time. Choose a lower --rate, or a machine with free cores"
            )
        if self.delay_p50_s > max(MAX_MEDIAN_DELAY_S, MAX_DELAY_SHARE * self.percentiles_s.get("p50", 0.0)):
            return (
                f"half of the requests left {self.delay_p50_s * 1000:.1f} ms late or more. Choose a lower "
                "--rate, or a machine with free cores"
            )
        return None

    def list_latencies_s(self) -> dict[str, float]:
        """Return `percentiles_s` without percentiles that have too few latencies above them."""
        count = self.statuses.get(OK, 0)
        lacking = {f"p{percentile}" for percentile in PERCENTILES if count < least_latencies(percentile)}
        return {name: value for name, value in self.percentiles_s.items() if name not in lacking}

    def document(self) -> dict[str, Any]:
        """Return the result for a JSON document, with latencies in milliseconds."""
        return {
            "texts": self.load.texts,
            "texts_per_request": self.load.texts_per_request,
            "clients": self.load.clients,
            "rate_hz": self.load.rate_hz,
            "elapsed_s": self.elapsed_s,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "errors": self.errors,
            "open_at_end": self.open_at_end,
            "oldest_open_s": self.oldest_open_s,
            "requests_per_s": self.requests_per_s,
            "texts_per_s": self.texts_per_s,
            "tokens_per_s": self.tokens_per_s,
            "encoding": self.encoding,
            "latency_ms": {name: seconds * 1000 for name, seconds in self.list_latencies_s().items()},
            "error_latency_ms": {name: 1000 * value for name, value in self.error_percentiles_s.items()},
            "generator_processor_share": self.processor_share,
            "generator_delay_p50_ms": self.delay_p50_s * 1000,
            "generator_delay_p99_ms": self.delay_p99_s * 1000,
            "refusal": self.refusal,
            "failure": self.failure,
        }


def least_latencies(percentile: int) -> int:
    """Return the number of latencies from which a percentile differs from the maximum."""
    return 100 // (100 - percentile)


def summarise_latencies(latencies_s: Sequence[float]) -> dict[str, float]:
    """Return min, mean, standard deviation, the percentiles and max in seconds, empty without latencies."""
    if not len(latencies_s):
        return {}
    values = np.asarray(latencies_s, np.float64)
    found = {"min": float(values.min()), "mean": float(values.mean()), "stdev": float(values.std())}
    # The smallest latency that so many per cent do not exceed: a percentile that was measured, never a mean.
    ordered = np.sort(values)
    for percentile in PERCENTILES:
        found[f"p{percentile}"] = float(ordered[math.ceil(percentile / 100 * len(ordered)) - 1])
    return {**found, "max": float(values.max())}


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
    heads = tuple(f"{name} ms" if name in _LATENCIES else name for name in _COLUMNS)
    rows = [heads, *(_cells(result) for result in results)]
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
    generator = f"{result.processor_share:.0%}"
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
