"""The run of `vecmill embed --to`: what it shows of a job of `vecmill.stores`."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vecmill.bulk.embedder import EmbeddingForm
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.pipeline import EmbedProgress
from vecmill.commands.embed.options import choose_model
from vecmill.commands.embed.progress import ProgressBar, show_progress
from vecmill.commands.embed.run import (
    DONE,
    INTERRUPTED,
    parse_chunking,
    parse_columns,
    parse_parameters,
    refuse_engine_options,
)
from vecmill.errors import InvalidConfig
from vecmill.stores.addresses import find_store
from vecmill.stores.embedded_collections import JobDisplay, StoreJob, name_source, run_job
from vecmill.stores.store_writer import StoreOptions, StoreSummary
from vecmill.stores.vector_store import Distance


def run_to_store(corpus: Path, address: str, options: Mapping[str, Any]) -> int:
    """Bring a collection up to date, and return the exit status. Raises `SetupError`."""
    job = parse_job(corpus, address, options)
    bars: list[ProgressBar] = []
    noun = "pictures" if job.corpus.has_pictures or job.columns.picture_column is not None else "texts"
    with ExitStack() as stack:

        def start(texts: int) -> EmbedProgress:
            bars.append(stack.enter_context(ProgressBar(texts, noun=noun)))
            return bars[-1]

        watch = partial(show_progress, doing="Reading")
        display = JobDisplay(partial(click.echo, err=True), watch, start)
        try:
            summary = run_job(job, display)
        except (KeyboardInterrupt, asyncio.CancelledError):
            click.echo("Interrupted.", err=True)
            if bars:
                click.echo(bars[-1].interruption(), err=True)
            click.echo(
                "What the store has acknowledged is kept. The same command continues from there.", err=True
            )
            return INTERRUPTED
    click.echo(f"{find_store(address).shown}: {describe_summary(summary, noun)}. {bars[-1].summary()}")
    return DONE


def parse_job(corpus: Path, address: str, options: Mapping[str, Any]) -> StoreJob:
    """Convert the options of the command line, which are given by name. Raises `SetupError`."""
    if options["server"] is not None:
        refuse_engine_options(options)
    form, chunking = EmbeddingForm(options["vectors"]), parse_chunking(options)
    parameters = replace(parse_parameters(options), chunking=chunking, form=form)
    distance, deletes = options["distance"], options["deletes_vanished"]
    return StoreJob(
        open_input(corpus),
        address,
        StoreOptions(
            name_source(corpus, options["source"], deletes),
            deletes,
            options["adopts"],
            None if distance is None else Distance(distance),
        ),
        parse_columns(options),
        parameters,
        choose_model(options),
        options["server"],
        options["api_key"],
    )


def describe_summary(summary: StoreSummary, noun: str = "texts") -> str:
    """Return what a run did, for a sentence."""
    counts = (
        (summary.embedded, f"{noun} embedded"),
        (summary.updated, "with other columns only"),
        (summary.unchanged, "unchanged"),
        (summary.deleted, "rows deleted"),
        (summary.skipped, "left out"),
    )
    told = [f"{count:,} {what}" for count, what in counts if count or what.endswith(" embedded")]
    if summary.vanished:
        told.append(f"{summary.vanished:,} rows that are no longer in the input stay (--delete-vanished)")
    return ", ".join(told)


def refuse_store_options(options: Mapping[str, Any]) -> None:
    """Raise `InvalidConfig` for an option that has no effect without `--to`."""
    names = {
        "source": "--source",
        "deletes_vanished": "--delete-vanished",
        "adopts": "--adopt",
        "distance": "--distance",
    }
    for option, name in names.items():
        if options[option]:
            raise InvalidConfig(f"{name} has no effect without --to.")
    if options["vectors"] != EmbeddingForm.DENSE:
        raise InvalidConfig("--vectors has no effect without --to.")
