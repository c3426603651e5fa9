"""Figures as a table for people and as JSON for whoever compares them later."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from support.source_tree import ROOT

FOLDER = ROOT / "build/bench"
BUSY_LOAD = 0.5
VERSIONS = ("vecmill", "onnxruntime", "numpy", "uvicorn", "starlette")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a report: the median of `values` against what was promised.

    `bound` is the promise, in `unit`; `at_most` says from which side. `None` promises nothing.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    bound: float | None = None
    at_most: bool = True

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        if self.bound is None:
            return True
        return self.median <= self.bound if self.at_most else self.median >= self.bound

    @property
    def promise(self) -> str:
        if self.bound is None:
            return ""
        return f"{'<=' if self.at_most else '>='} {self.bound:g}{'' if self.holds else '  MISSED'}"


def at_least(name: str, unit: str, values: Sequence[float], bound: float | None) -> Figure:
    """Return a figure that is promised not to be lower."""
    return Figure(name, unit, tuple(values), bound, at_most=False)


def ratios_of(values: Iterable[float], others: Iterable[float]) -> tuple[float, ...]:
    """Return the ratios of values that were measured in turn, one of each in a round."""
    return tuple(value / other for value, other in zip(values, others, strict=True))


def warn_if_busy() -> None:
    """Say so when something else runs: figures from a busy machine tell little."""
    load = os.getloadavg()[0]
    print(f"load average {load:.2f}, {os.cpu_count()} cores, {processor_name()}")
    if load > BUSY_LOAD:
        print("WARNING: something else runs here; figures from a busy machine tell little", file=sys.stderr)


def processor_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def print_table(title: str, figures: Sequence[Figure]) -> None:
    """Medians, spread and promises."""
    width = max(len(figure.name) for figure in figures)
    print(f"\n{title}\n{'':{width}}  {'median':>10}  {'min':>10}  {'max':>10}  promise")
    for figure in figures:
        spread = f"{min(figure.values):>10.3f}  {max(figure.values):>10.3f}"
        print(f"{figure.name:{width}}  {figure.median:>10.3f}  {spread}  {figure.promise}  [{figure.unit}]")


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def save_page(name: str, page: str) -> Path:
    """Write `build/bench/NAME.md`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.md"
    path.write_text(page.rstrip() + "\n", "utf-8")
    return path


def save_report(name: str, figures: Sequence[Figure], settings: Mapping[str, Any]) -> Path:
    """Write `build/bench/NAME.json`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    report = {
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "load_average_at_end": os.getloadavg(),
        "versions": {package: version(package) for package in VERSIONS},
        "settings": dict(settings),
        "figures": [
            {name: getattr(figure, name) for name in ("name", "unit", "median", "values", "bound", "holds")}
            for figure in figures
        ],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return path


def finish(name: str, title: str, figures: Sequence[Figure], settings: Mapping[str, Any]) -> int:
    """Print, save, and give the exit status: 0 if every promise holds."""
    print_table(title, figures)
    print(f"\nwritten to {save_report(name, figures, settings).relative_to(ROOT)}")
    return 0 if all(figure.holds for figure in figures) else 1
