"""The command `vecmill check`, which compares the outputs of a model with a reference implementation."""

import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import click

from vecmill.commands.options import CACHE_DIR, PRECISIONS, TEXTS, TRUST


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

    Of an asymmetric model, the texts are compared as documents and as queries. The reference is
    sentence-transformers or transformers if installed, else the fp32 engine. Exits with 1 if a value differs
    by more than 1e-4; if values exceed 1, by more than 1e-4 of the largest. In a reduced precision it exits
    with 1 if a cosine with the reference is below 0.99, in 16 bits below 0.999. A server with the same cache
    directory that serves MODEL in the same way shows what was found, at GET /v1/accuracy/NAME.
    """
    from vecmill.commands.check.model_comparison import (
        compare_model,
        describe_own_reference,
        describe_verdict,
        is_accepted,
    )
    from vecmill.config import MillConfig, default_cache_dir
    from vecmill.values.engine_plan import Precision
    from vecmill.verification.check_records import write_record

    texts = [line.rstrip("\n") for line in file] if file is not None else None
    precision = options["precision"]
    config = MillConfig(
        engine=options["engine"],
        precision=None if precision is None else Precision(precision),
        cache_dir=options["cache_dir"],
    )
    found = compare_model(
        model,
        config,
        task=options["task"],
        trusts_code=options["trusts_code"],
        texts=texts,
        count=options["count"],
    )
    for report in found.reports:
        for line in (
            *report.lines(),
            f"verdict             {describe_verdict(report)}",
        ):
            click.echo(line)
    if advice := describe_own_reference(found):
        click.echo(advice, err=True)
    cache_dir = config.cache_dir or default_cache_dir()
    try:
        record = found.record(datetime.now(UTC), has_own_texts=bool(texts))
        write_record(record, found.description, found.engine, cache_dir)
    except OSError as error:
        click.echo(f"Servers cannot show this: {cache_dir} cannot be written ({error.strerror}).", err=True)
    sys.exit(0 if all(is_accepted(report) for report in found.reports) else 1)
