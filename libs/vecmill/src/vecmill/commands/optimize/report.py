"""The report `report.md`: the chosen plan, the reason, all figures, and plots of speed against accuracy.

matplotlib (`vecmill[optimize]`) draws the plots.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vecmill.commands.optimize.choice import NOISE_BOUND, Choice, Goal, may_be_chosen, median_score
from vecmill.commands.optimize.measurements import Measurements, Speed
from vecmill.commands.optimize.output_directory import OptimizationResult
from vecmill.commands.optimize.plan_quality import PlanQuality, find_quality
from vecmill.evaluation.quality_tables import format_estimate
from vecmill.serving_plan.plans import Accuracy, describe_plan
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.messages import pip_command

HEADINGS = (
    "plan",
    "texts/s",
    "single text, ms",
    "relative throughput",
    "relative latency",
    "cosine, worst",
    "cosine, mean",
    "recall@10",
    "memory, MB",
    "load time, s",
    "passes",
    "",
)
# With labelled texts, before the remarks.
QUALITY_HEADINGS = ("nDCG@10", "p")


def write_report(
    result: OptimizationResult, pictures: Sequence[Path], *, is_interrupted: bool = False
) -> str:
    """Return the report in Markdown. `pictures` lie beside it."""
    parts = [
        _opening(result, is_interrupted),
        _table(result),
        _pictures(pictures),
        _method(result),
        _left_out(result),
        _environment(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(result: OptimizationResult, is_interrupted: bool) -> str:
    choice = result.choice
    lines = [f"# {result.model}, optimised", ""]
    if is_interrupted:
        lines += ["**This run was interrupted.** The same command continues it.", ""]
    lines += [f"**{describe_plan(choice.plan)}**: {choice.reason}.", ""]
    speed = result.measured.speed_of(choice.plan)
    if speed is not None:
        lines.append(f"{speed.texts_per_s:.0f} texts/s, {speed.latency_s * 1000:.1f} ms for a single text.")
    screening = result.measured.screening_of(choice.plan)
    if screening is not None:
        lines.append(_describe_accuracy(screening.accuracy))
    return "\n".join(lines)


def _describe_accuracy(accuracy: Accuracy) -> str:
    if accuracy.cosine_min is None:
        figures = f"The largest difference of a score is {accuracy.largest_difference:.1e}"
        recall = f"{_number(accuracy.kept, 3)} of the decisions are the same"
    else:
        figures = f"The cosine of the worst text is {accuracy.cosine_min:.5f}"
        recall = f"the recall@10 is {_number(accuracy.kept, 3)}"
    return f"{figures}, and {recall}, over {accuracy.texts} texts, compared with {accuracy.reference}."


def _table(result: OptimizationResult) -> str:
    measured, goal = result.measured, result.goal
    ordered = sorted(measured.plans, key=lambda plan: _rank(result, plan))
    headings = (*HEADINGS[:-1], *(QUALITY_HEADINGS if result.qualities else ()), HEADINGS[-1])
    lines = [_row(headings), _row(["---"] * len(headings)), *(_row(_cells(result, plan)) for plan in ordered)]
    title = f"## All plans, the best first ({goal.objective})"
    unchecked = any(plan not in measured.screenings for plan in measured.plans)
    note = "\n\nFor plans without a memory figure, the accuracy is that of the same engine and precision."
    return f"{title}\n\n" + "\n".join(lines) + (note if unchecked else "")


def _rank(result: OptimizationResult, plan: EnginePlan) -> tuple[bool, bool, float]:
    measured, goal = result.measured, result.goal
    allowed = may_be_chosen(measured, goal, plan)
    return plan != result.choice.plan, not allowed, -median_score(measured, goal, plan)


def _cells(result: OptimizationResult, plan: EnginePlan) -> Iterator[str]:
    measured = result.measured
    own, alike = measured.screenings.get(plan), measured.screening_of(plan)
    speed, ratio = measured.speed_of(plan), measured.median_ratio(plan)
    yield describe_plan(plan)
    if speed is None or ratio is None:
        yield from ("", "", "", "")
    else:
        yield from (_number(speed.texts_per_s, 1), _number(speed.latency_s * 1000, 2))
        yield from (_number(ratio.throughput, 2), _number(ratio.latency, 2))
    if alike is None:
        yield from ("", "", "")
    else:
        yield _number(alike.accuracy.cosine_min, 5)
        yield _number(alike.accuracy.cosine_mean, 5)
        yield _number(alike.accuracy.kept, 3)
    yield from ("", "") if own is None else (_number(own.memory_mb, 0), _number(own.load_s, 1))
    yield str(len(measured.ratios(plan)))
    if result.qualities:
        yield from _quality_cells(find_quality(result.qualities, plan))
    yield _remark(result, measured, plan)


def _quality_cells(quality: PlanQuality | None) -> tuple[str, str]:
    if quality is None:
        return "", ""
    return format_estimate(quality.ndcg), _number(quality.p_value, 4)


def _remark(result: OptimizationResult, measured: Measurements, plan: EnginePlan) -> str:
    remarks = ["chosen"] if plan == result.choice.plan else []
    if plan == measured.safe:
        remarks.append("the safe plan")
    screening = measured.screening_of(plan)
    refusal = None if screening is None else result.goal.refusal(screening.accuracy)
    if plan in measured.failures:
        remarks.append(f"failed: {measured.failures[plan]}")
    elif refusal is not None:
        remarks.append(f"refused: {refusal}")
    return "; ".join(remarks)


def _pictures(pictures: Sequence[Path]) -> str:
    if not pictures:
        command = pip_command("install", "vecmill[optimize]")
        return f"(Plots of speed against accuracy need matplotlib: {command}.)"
    return "\n".join(f"![{picture.stem.replace('-', ' against ')}]({picture.name})" for picture in pictures)


def _method(result: OptimizationResult) -> str:
    return f"""## How this was measured

Each engine ran in a process of its own, on {result.machine.cores} cores, over {result.texts} texts. *Texts/s*
is measured with many waiting texts and as many concurrent calls as a server makes. *Single text* is the
median time of one text on an idle machine. Both exclude HTTP and tokenisation.

Plans were measured in passes, in random order. Each pass began and ended with the safe plan. *Relative*
speeds are relative to the safe plan in the same pass, and are medians over the passes, so that drift of the
machine does not favour any plan. The safe plan's speed typically changed by {result.choice.noise:.1%} within
a pass. Above {NOISE_BOUND:.0%} only a plan that beat the safe plan by more than that in every pass could be
chosen.

Accuracy is measured over random batches. *Recall@10* is the share of each text's ten nearest neighbours that
are the same, or of a model's decisions. Plans below these minimums are refused:
{_describe_minimums(result)}.{_describe_quality(result)}"""


def _describe_quality(result: OptimizationResult) -> str:
    found = next(iter(result.qualities.values()), None)
    if found is None:
        return ""
    return (
        f"\n\n*nDCG@10* is that of {found.queries} labelled queries, with its 95% interval. *p* is that of\n"
        "a paired test of the difference to the safe plan: below 0.05 it is hardly chance."
    )


def _describe_minimums(result: OptimizationResult) -> str:
    goal = result.goal
    cosine = f"a cosine of {goal.min_cosine:g} for the worst text"
    if goal.min_recall is None:
        return cosine
    return f"{cosine}, and a recall@10 of {goal.min_recall:g}"


def _left_out(result: OptimizationResult) -> str:
    if not result.left_out:
        return ""
    lines = [f"- {engine}: {reason}" for engine, reason in result.left_out.items()]
    return "## Not tried\n\n" + "\n".join(lines)


def _environment(result: OptimizationResult) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return f"""## Machine and versions

- machine: {machine.processor_model}, {machine.cores} cores, {machine.system} (`{machine.fingerprint}`)
- model: `{result.model_fingerprint}`
- {versions}

On another machine another plan may be best. Run `vecmill optimize` on that machine to find it."""


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


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
