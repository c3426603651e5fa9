"""A published table measured again: the page, the JSON document and the plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.report import FOLDER, Figure, at_least, processor_name, save_page, save_report
from support.source_tree import ROOT
from vecmill.hardware.cores import available_cores
from vecmill_server.bench.load_results import LoadResult

NOT_MEASURED = "not measured"
INCHES, DOTS_PER_INCH = (8.0, 5.0), 120


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command: `page` in Markdown, `figures`, and `draw`, which draws on given axes."""

    name: str
    title: str
    page: str
    figures: Sequence[Figure]
    settings: dict[str, Any]
    draw: Callable[[Any], None]

    def finish(self) -> int:
        """Print the page and write all files. Return 0 if vecmill is ahead in every row, else 1."""
        here = f"Measured on {available_cores()} cores, {processor_name()}."
        page = save_page(self.name, f"# {self.title}\n\n{here}\n\n{self.page}")
        plot = FOLDER / f"{self.name}.png"
        draw_plot(plot, self.draw)
        document = save_report(self.name, self.figures, self.settings)
        print(f"\n{page.read_text('utf-8')}")
        for path in (page, document, plot):
            print(f"written to {path.relative_to(ROOT)}")
        promised = [figure for figure in self.figures if figure.bound is not None]
        missed = [figure for figure in promised if not figure.holds]
        print(f"vecmill is ahead in {len(promised) - len(missed)} of {len(promised)} comparisons")
        for figure in missed:
            print(f"not ahead: {figure.name}: {figure.median:.3f}")
        return int(bool(missed))


def draw_plot(file: Any, draw: Callable[[Any], None]) -> None:
    """Write a plot with one pair of axes."""
    # Without pyplot there is no state outside of the figure, and no window system is looked for.
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    draw(drawing.add_subplot())
    drawing.savefig(file)


def ahead(name: str, ratios: Sequence[float]) -> Figure:
    """The promise that vecmill is ahead: a ratio above 1."""
    return at_least(name, "ratio", ratios, 1.0)


def times_ms(results: Sequence[LoadResult], name: str) -> list[float]:
    """Return a statistic of the latency in ms, for each round."""
    return [result.percentiles_s[name] * 1e3 for result in results]


def latency_figures(label: str, results: Sequence[LoadResult], parts: Sequence[str]) -> list[Figure]:
    """Return those statistics of the latency that every round has enough requests for."""
    return [
        Figure(f"{label}, {part}", "ms", tuple(times_ms(results, part)))
        for part in parts
        if all(part in each.list_latencies_s() for each in results)
    ]


def count_cores(cores: int) -> str:
    """Return "1 core", "2 cores" and so on."""
    return f"{cores} core{'s' * (cores != 1)}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the median, with minimum and maximum if there is more than one value."""
    if not values:
        return NOT_MEASURED
    middle = f"{median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"
