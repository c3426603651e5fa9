"""The command `vecmill check`, which compares the outputs of a model with a reference implementation."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from vecmill.commands.options import CACHE_DIR, PRECISIONS, TEXTS, TRUST, show_downloads
from vecmill.config import MillConfig, default_cache_dir
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.errors import InvalidConfig
from vecmill.hardware.cores import available_cores
from vecmill.models import Task, locate_model
from vecmill.serving_plan.choice_at_load import plan_model
from vecmill.values.engine_plan import Precision
from vecmill.values.sample_texts import sample_texts
from vecmill.verification.comparison import VerificationReport, compare_with_reference
from vecmill.verification.reference import load_reference


@click.command()
@click.argument("model", required=False)
@click.option("--task", help="The task of MODEL. Default: as in its directory.")
@click.option("--engine", help="The engine to check. Default: the engine that would serve MODEL.")
@click.option(
    "--precision", type=click.Choice(PRECISIONS), help="The precision of the engine. Default: fp32."
)
@TRUST
@TEXTS
@click.option("--count", default=300, show_default=True, help="The number of sample texts without --texts.")
@CACHE_DIR
def check(model: str | None, file: TextIO | None, **options: Any) -> None:
    """Compare the embeddings or scores of MODEL with a reference.

    The reference is sentence-transformers or transformers if installed, else the fp32 engine. Exits with 1 if
    a value differs by more than 1e-4; if values exceed 1, by more than 1e-4 of the largest.
    """

    texts = [line.rstrip("\n") for line in file] if file is not None else None
    precision = options["precision"]
    config = MillConfig(
        engine=options["engine"],
        precision=None if precision is None else Precision(precision),
        cache_dir=options["cache_dir"],
    )
    report = compare_model(
        model,
        config,
        task=options["task"],
        trusts_code=options["trusts_code"],
        texts=texts,
        count=options["count"],
    )
    for line in report.lines():
        click.echo(line)
    sys.exit(0 if report.is_within(1e-4) else 1)


def compare_model(
    model: str | None,
    config: MillConfig,
    *,
    task: str | None = None,
    trusts_code: bool = False,
    texts: Sequence[str] | None = None,
    count: int = 300,
) -> VerificationReport:
    """Compare the outputs of a mill with `config` with a reference, over `texts` or `count` sample texts.

    `task` overrides the task of the model's directory. With `trusts_code` the model's own code may be run.
    Raises `SetupError`.
    """
    if task not in (None, *Task):
        raise InvalidConfig(f"--task is {task!r}; it must be one of {', '.join(Task)}.")
    with show_downloads():
        location = locate_model(model, trusts_code=trusts_code)
    description = describe_model(location, None if task is None else Task(task))
    served = plan_model(description, config)
    engine = load_engine(
        description, served.plan, cores=config.cores or available_cores(), cache_dir=served.cache_dir
    )
    try:
        reference = load_reference(description, config.cache_dir or default_cache_dir())
        return compare_with_reference(description, engine, reference, texts or sample_texts(count))
    finally:
        engine.close()
