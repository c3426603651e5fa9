"""Plots of speed against accuracy, drawn with matplotlib (`vecmill[optimize]`)."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vecmill.commands.optimize.choice import Choice, Goal
from vecmill.commands.optimize.measurements import Measurements, Speed
from vecmill.values.engine_plan import EnginePlan

# The smallest difference on the logarithmic axis.
MIN_DIFFERENCE = 1e-7
INCHES, DOTS_PER_INCH = (8.0, 5.0), 120


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_plots(measured: Measurements, goal: Goal, choice: Choice, directory: Path) -> list[Path]:
    """Draw texts per second, and the time of a single text, against accuracy. Return the files."""
    throughput, latency = directory / "accuracy-throughput.png", directory / "accuracy-latency.png"
    _draw(measured, goal, choice, throughput, "texts per second", lambda speed: speed.texts_per_s)
    _draw(measured, goal, choice, latency, "single text, ms", lambda speed: speed.latency_s * 1000)
    return [throughput, latency]


def _draw(measured: Measurements, goal: Goal, choice: Choice, file: Path, label: str, value: Any) -> None:
    # pyplot would keep global state and look for a window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for name, points in _points(measured).items():
        axes.scatter(
            [off for off, _, _ in points], [value(speed) for _, speed, _ in points], label=name, alpha=0.7
        )
    chosen = next(
        (point for points in _points(measured).values() for point in points if point[2] == choice.plan),
        None,
    )
    if chosen is not None:
        axes.scatter(
            [chosen[0]], [value(chosen[1])], s=220, facecolors="none", edgecolors="black", label="chosen"
        )
    bound = max(1 - goal.min_cosine, MIN_DIFFERENCE)
    axes.axvline(bound, color="grey", linestyle="--", label=f"minimum: {goal.min_cosine:g}")
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("1 - cosine of the worst text (right: more accurate)")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(file)


def _points(measured: Measurements) -> dict[str, Sequence[tuple[float, Speed, EnginePlan]]]:
    """Return the difference, speed and plan of each point, by engine and precision."""
    points: dict[str, list[tuple[float, Speed, EnginePlan]]] = {}
    for plan in measured.plans:
        screening, speed = measured.screening_of(plan), measured.speed_of(plan)
        if screening is not None and speed is not None:
            name = f"{plan.engine} {plan.precision}"
            difference = max(1 - screening.accuracy.worst_cosine, MIN_DIFFERENCE)
            points.setdefault(name, []).append((difference, speed, plan))
    return dict(points)
