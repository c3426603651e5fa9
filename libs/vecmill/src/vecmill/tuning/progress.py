"""`vecmill optimize` on a terminal: a bar that fills with the time, what is being done, and the result."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from vecmill.tuning.artefact import REPORT_FILE, Findings
from vecmill.tuning.command import Interrupted, Order, optimize_model
from vecmill.tuning.search import describe_plan

DONE, TOO_NOISY, INTERRUPTED = 0, 3, 130
_STEP_CHARACTERS = 60


def run_shown(order: Order) -> int:
    """Optimise, showing how it goes on standard error; the exit status. Raises `SetupError`."""
    try:
        with _bar(order.time_limit_s) as show:
            findings = optimize_model(order, show)
    except Interrupted:
        click.echo(f"Interrupted. What was measured is kept in {order.directory}.", err=True)
        click.echo("The same command goes on with it.", err=True)
        return INTERRUPTED
    _print(findings, order)
    return TOO_NOISY if findings.choice.is_too_noisy else DONE


@contextmanager
def _bar(limit_s: float) -> Iterator[Callable[[str], None]]:
    """A bar over the time, drawn anew with each step; nothing where nobody looks."""
    began = time.monotonic()
    with click.progressbar(
        length=round(limit_s),
        bar_template="%(bar)s %(label)s",
        width=24,
        file=sys.stderr,
    ) as bar:

        def show(step: str) -> None:
            bar.label = step[:_STEP_CHARACTERS]
            bar.update(round(time.monotonic() - began) - bar.pos)
            bar.render_progress()

        yield show


def _print(findings: Findings, order: Order) -> None:
    choice = findings.choice
    click.echo(f"{describe_plan(choice.plan)}: {choice.reason}.")
    speed = findings.ledger.speed_of(choice.plan)
    if speed is not None:
        click.echo(f"{speed.texts_per_s:.0f} texts/s, {speed.latency_s * 1000:.1f} ms for a lone text.")
    click.echo(f"All figures are in {order.directory / REPORT_FILE}.")
    click.echo(f"Serve it: {shlex.join(['vecmill', 'serve', str(order.directory)])}")
