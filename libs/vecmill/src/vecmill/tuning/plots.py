"""Speed against accuracy as pictures. They need matplotlib, which only `vecmill[optimize]` brings."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vecmill.plan import EnginePlan
from vecmill.tuning.choice import Choice, Demand
from vecmill.tuning.figures import Ledger, Speed

# Nearer than this to the reference is drawn as this near: the axis is logarithmic.
NEAREST = 1e-7
INCHES, DOTS_PER_INCH = (8.0, 5.0), 120


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_plots(ledger: Ledger, demand: Demand, choice: Choice, directory: Path) -> list[Path]:
    """Draw texts a second, and the time of a lone text, against accuracy. Returns the files."""
    return [
        _draw(
            ledger,
            demand,
            choice,
            directory / "accuracy-throughput.png",
            "texts a second",
            lambda speed: speed.texts_per_s,
        ),
        _draw(
            ledger,
            demand,
            choice,
            directory / "accuracy-latency.png",
            "a lone text, ms",
            lambda speed: speed.latency_s * 1000,
        ),
    ]


def _draw(ledger: Ledger, demand: Demand, choice: Choice, file: Path, label: str, value: Any) -> Path:
    # Without pyplot there is no state outside of the figure, and no window system is looked for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for name, points in _points(ledger).items():
        axes.scatter(
            [off for off, _, _ in points], [value(speed) for _, speed, _ in points], label=name, alpha=0.7
        )
    chosen = next(
        (point for points in _points(ledger).values() for point in points if point[2] == choice.plan), None
    )
    if chosen is not None:
        axes.scatter(
            [chosen[0]], [value(chosen[1])], s=220, facecolors="none", edgecolors="black", label="chosen"
        )
    bound = max(1 - demand.min_cosine, NEAREST)
    axes.axvline(bound, color="grey", linestyle="--", label=f"asked for: {demand.min_cosine:g}")
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("1 - cosine of the worst text (to the right: more accurate)")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(file)
    return file


def _points(ledger: Ledger) -> dict[str, Sequence[tuple[float, Speed, EnginePlan]]]:
    """How far off, how fast, and which plan, by engine and precision."""
    points: dict[str, list[tuple[float, Speed, EnginePlan]]] = {}
    for plan in ledger.plans:
        admission, speed = ledger.admission_of(plan), ledger.speed_of(plan)
        if admission is not None and speed is not None:
            name = f"{plan.engine} {plan.precision}"
            off = max(1 - admission.accuracy.worst, NEAREST)
            points.setdefault(name, []).append((off, speed, plan))
    return dict(points)
