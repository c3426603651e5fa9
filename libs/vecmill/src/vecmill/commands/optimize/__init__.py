"""The command `vecmill optimize`, which finds the best plan for a model on this machine by measurement.

    candidates        the plans to try: engine, precision, lanes, token budget, rounding
    search            the choice of the plans to measure next, within the time limit
      bench           the measurements, in one process (`worker`) for each loaded engine
      journal         the stored measurements, for the continuation of an interrupted run
    measurements      the measurements of all plans, and derived figures
    plan_quality      the quality of the plans on labelled texts
    choice            the choice of the best plan
    output_directory  the directory to serve from: model, manifest, prepared files, `report`

The speed of a shared machine can drift by a third within minutes, so measurements are made in passes. Each
pass begins and ends with the safe plan, a plan in fp32 that is the baseline for all other plans. The speed of
a plan is measured relative to the safe plan in the same pass. The result is the median of several passes. The
difference between the two speeds of the safe plan in a pass shows the noise of the machine.
"""

import signal
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from vecmill.commands.label_options import label_options, take_labels
from vecmill.commands.options import CACHE_DIR, TEXTS


@click.command(context_settings={"show_default": True})
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A new directory, to be served by `vecmill serve`.",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency", "balanced"]),
    default="balanced",
    help="The measure to optimise: texts per second, the time of a single text, or both.",
)
@click.option(
    "--min-cosine",
    type=click.FloatRange(0, 1),
    default=0.999,
    help="The minimum cosine with fp32, for the worst text.",
)
@click.option(
    "--min-neighbours",
    type=click.FloatRange(0, 1),
    help="The minimum recall@10: the share of the ten nearest neighbours that are the same as in fp32.",
)
@TEXTS
@click.option("--engine", "engines", multiple=True, help="Try only this engine. May be given several times.")
@click.option(
    "--time-limit-s", type=click.FloatRange(min=1), default=300.0, help="The time for the measurements."
)
@CACHE_DIR
@label_options
def optimize(
    model: str | None,
    directory: Path,
    file: TextIO | None,
    objective: str,
    min_cosine: float,
    min_neighbours: float | None,
    **options: Any,
) -> None:
    """Find the best settings for MODEL on this machine, and write a directory to serve MODEL with them.

    Measures the engines, precisions, lane widths and token budgets that this machine supports, and drops
    plans that are less accurate than required. The machine should be idle otherwise. If the command is
    interrupted, the same command continues with the measurements so far. Exits with 3 if the machine was too
    noisy to choose. With labelled texts, the report has the nDCG of the plans beside their cosine.
    """
    from vecmill.commands.optimize.choice import Goal, Objective
    from vecmill.commands.optimize.plan_quality import LabelFiles
    from vecmill.commands.optimize.progress import run_with_progress
    from vecmill.commands.optimize.run import OptimizeOptions

    # SIGTERM is handled like Ctrl-C: the measurements are kept, and all worker processes end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    texts = [line.rstrip("\n") for line in file] if file is not None else []
    named = take_labels(options)
    labels = LabelFiles(**named) if named else None
    goal = Goal(Objective(objective), min_cosine, min_neighbours)
    sys.exit(run_with_progress(OptimizeOptions(model, directory, goal, texts, labels=labels, **options)))
