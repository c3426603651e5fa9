"""The progress display of `vecmill optimize`: a bar over the time limit, the current step, and the result."""

import math
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from vecmill.commands.optimize.choice import describe_refused, find_clouded
from vecmill.commands.optimize.measurements import Measurements
from vecmill.commands.optimize.output_directory import REPORT_FILE, OptimizationResult
from vecmill.commands.optimize.run import Interrupted, OptimizeOptions, optimize_model
from vecmill.commands.optimize.search import NO_TIME
from vecmill.serving_plan.plans import describe_plan
from vecmill.values.engine_plan import EnginePlan

DONE, TOO_NOISY, INTERRUPTED = 0, 3, 130
_BAR_CHARACTERS = 24
NOISE_ADVICE = (
    "The directory can be served, with the safe plan. For a better plan, end what else uses the cores, and "
    "run the command again with another --output and a longer --time-limit-s."
)
_ERASE_LINE = "\r\x1b[K"


def run_with_progress(options: OptimizeOptions) -> int:
    """Optimise with progress on standard error, and return the exit status. Raises `SetupError`."""
    try:
        with _bar(options.time_limit_s) as show:
            result = optimize_model(options, show, _print_advice)
    except Interrupted:
        click.echo(f"Interrupted. The measurements are kept in {options.directory}.", err=True)
        click.echo("The same command continues with them.", err=True)
        return INTERRUPTED
    _print(result, options)
    if result.choice.is_too_noisy:
        click.echo(NOISE_ADVICE, err=True)
        if clouded := find_clouded(result.measured, result.goal, result.choice):
            click.echo(describe_clouded(*clouded, options.model), err=True)
    return TOO_NOISY if result.choice.is_too_noisy else DONE


def describe_clouded(plan: EnginePlan, times: float, model: str | None) -> str:
    """Return which accurate plan seemed the fastest on a noisy machine, and the command that serves it."""
    options = [("--engine", plan.engine), ("--precision", plan.precision), ("--device", plan.device)]
    given = [word for name, value in options if value is not None for word in (name, str(value))]
    command = shlex.join(["vecmill", "serve", *([] if model is None else [model]), *given])
    return (
        f"The fastest accurate plan seemed to be {describe_plan(plan)}, {times:.1f} times as fast as the "
        f"safe plan, which the noise makes uncertain. To serve it without the directory: {command}"
    )


@contextmanager
def _bar(limit_s: float) -> Iterator[Callable[[str], None]]:
    """Show a bar over the time limit that is drawn at each step, on a terminal only."""
    began = time.monotonic()
    with click.progressbar(
        length=round(limit_s),
        bar_template="%(bar)s %(label)s",
        width=_BAR_CHARACTERS,
        file=sys.stderr,
    ) as bar:

        def show(step: str) -> None:
            bar.label = _fit(step)
            bar.update(round(time.monotonic() - began) - bar.pos)
            bar.render_progress()

        yield show


def _fit(step: str) -> str:
    """Return a step without its last words if it does not fit into the line of a terminal."""
    if not sys.stderr.isatty():
        return step
    room = shutil.get_terminal_size().columns - _BAR_CHARACTERS - 2
    return textwrap.shorten(step, max(room, _BAR_CHARACTERS), placeholder=" ...")


def _print_advice(sentence: str) -> None:
    """Print a sentence above the bar."""
    click.echo(f"{_ERASE_LINE if sys.stderr.isatty() else ''}{sentence}", err=True)


def describe_unmeasured(measured: Measurements, limit_s: float) -> str | None:
    """Return which engines and precisions the time limit left out, and a limit for all of them."""
    left = [plan for plan, reason in measured.failures.items() if reason == NO_TIME]
    if not left:
        return None
    # The others take as long to load and to check as those that were tried, and a pass over all takes longer.
    share = len(measured.screenings) / (len(measured.screenings) + len(left))
    enough_s = math.ceil(2 * limit_s / share / 60) * 60
    return (
        f"Not measured, because the time limit was reached: {', '.join(map(describe_plan, left))}. "
        f"--time-limit-s {enough_s} should be enough for all."
    )


def _print(result: OptimizationResult, options: OptimizeOptions) -> None:
    choice = result.choice
    click.echo(f"{describe_plan(choice.plan)}: {choice.reason}.")
    speed = result.measured.speed_of(choice.plan)
    if speed is not None:
        click.echo(f"{speed.texts_per_s:.0f} texts/s, {speed.latency_s * 1000:.1f} ms for a single text.")
    for sentence in describe_refused(result.measured, result.goal, choice):
        click.echo(sentence)
    unmeasured = describe_unmeasured(result.measured, options.time_limit_s)
    if unmeasured is not None:
        click.echo(unmeasured)
    click.echo(f"All figures are in {options.directory / REPORT_FILE}.")
    click.echo(f"To serve it: {shlex.join(['vecmill', 'serve', str(options.directory)])}")
