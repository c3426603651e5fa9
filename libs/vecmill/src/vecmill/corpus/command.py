"""`vecmill embed`: from a file of texts to a file of rows."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from vecmill.config import MillConfig
from vecmill.corpus.embedder import Embedder, Treatment
from vecmill.corpus.local import open_local
from vecmill.corpus.outputs import Shape, check_output, open_output
from vecmill.corpus.parts import Parts, Run, folder_of, open_parts, refuse_existing
from vecmill.corpus.pipeline import embed_parts
from vecmill.corpus.progress import Bar, show_steps
from vecmill.corpus.records import cut_parts
from vecmill.corpus.remote import open_remote
from vecmill.corpus.sources import Source, open_source
from vecmill.corpus.survey import Survey, Wanted, survey_source, valid_records
from vecmill.errors import InvalidConfig, InvalidCorpus, SetupError, VecmillError
from vecmill.models.fingerprint import hash_file
from vecmill.plan import Precision
from vecmill.reading import Purpose
from vecmill.rows import RowKind
from vecmill.types import JsonValue

DONE, INTERRUPTED = 0, 130

# What an identity's values are called when they are different.
_WORDS = MappingProxyType({"name": "model", "fingerprint": "content of the model"})


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks for. `server` is a URL; without one we embed here, as `config` says."""

    corpus: Path
    output: Path
    wanted: Wanted = field(default_factory=Wanted)
    treatment: Treatment = field(default_factory=Treatment)
    model: str | None = None
    config: MillConfig = field(default_factory=MillConfig)
    trusts_code: bool = False
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an order: an output of `rows` rows of `dim` numbers; `how` says what was done for it."""

    rows: int
    skipped: int
    dim: int
    how: str


@dataclass(frozen=True, slots=True)
class Done:
    """All parts are there: what they belong to, how long their rows are, who made them and how it went."""

    run: Run
    dim: int
    identity: Mapping[str, JsonValue]
    how: str


def read_order(corpus: Path, output: Path, options: Mapping[str, Any]) -> Order:
    """The order that options of the command line make, by their names there. Raises `InvalidConfig`."""
    server, precision, purpose = options["server"], options["precision"], options["purpose"]
    of_engines = ("engine", "precision", "device", "cores", "trusts_code")
    if server is not None and any(options[name] for name in of_engines):
        raise InvalidConfig(
            "With --server the server has chosen how to compute. Leave out --engine, --precision, --device, "
            "--cores and --trust-remote-code."
        )
    return Order(
        corpus,
        output,
        Wanted(options["text"], options["identity"], options["copies"], options["skips_invalid"]),
        Treatment(
            options["prompt_name"],
            None if purpose is None else Purpose(purpose),
            options["dimensions"],
            RowKind.FLOAT if options["dtype"] == "float32" else RowKind(options["dtype"]),
        ),
        options["model"],
        MillConfig(
            engine=options["engine"],
            precision=None if precision is None else Precision(precision),
            device=options["device"],
            cores=options["cores"],
            cache_dir=options["cache_dir"],
        ),
        options["trusts_code"],
        server,
        options["api_key"],
    )


def run_shown(order: Order) -> int:
    """Embed, showing how it goes on standard error; the exit status. Raises `SetupError`."""
    try:
        result = embed_corpus(order)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        if folder_of(order.output).exists():
            click.echo(f"What is embedded is kept in {folder_of(order.output)}.", err=True)
            click.echo("The same command goes on with it.", err=True)
        return INTERRUPTED
    left_out = f", and {result.skipped:,} left out" if result.skipped else ""
    click.echo(f"{order.output}: {result.rows:,} rows of {result.dim} numbers{left_out}. {result.how}")
    return DONE


def embed_corpus(order: Order) -> Result:
    """Write the output, going on with the parts that an earlier run has left.

    Runs an event loop of its own. Raises `SetupError`.
    """
    source = open_source(order.corpus)
    if order.output.resolve() == order.corpus.resolve():
        raise InvalidConfig(f"{order.output} is the input itself. Name another output.")
    refuse_existing(order.output)
    check_output(order.output, order.wanted)
    survey = survey_source(source, order.wanted)
    done = asyncio.run(_embed(order, source, survey))
    left_out = 0
    with open_parts(order.output, done.run, done.dim) as parts:
        if parts.is_finished:
            parts.remove()
        else:
            refuse_existing(order.output)
            left_out = _assemble(order, source, survey, parts, done)
    return Result(survey.rows - left_out, survey.skipped + left_out, done.dim, done.how)


def _open_embedder(order: Order) -> AbstractAsyncContextManager[Embedder]:
    if order.server is None:
        return open_local(order.model, order.config, order.treatment, trusts_code=order.trusts_code)
    return open_remote(order.server, order.model, order.treatment, key=order.api_key)


def _run_of(order: Order, survey: Survey, embedder: Embedder) -> Run:
    """All that the rows of a part depend on, in the words in which a person is told what is different."""
    treatment = order.treatment
    return {
        "version of vecmill": version("vecmill"),
        "input": survey.sha256,
        **{_WORDS.get(name, name): value for name, value in embedder.identity.items()},
        "text column": survey.columns.text,
        # Which rows are left out may depend on them.
        "choice of columns": list(survey.columns.copies) if survey.skipped else [],
        "number of rows left out": survey.skipped,
        "prompt": [treatment.prompt_name, treatment.purpose],
        "number of dimensions": embedder.dim,
        "dtype": treatment.kind,
    }


async def _embed(order: Order, source: Source, survey: Survey) -> Done:
    """Compute the parts that are missing. Raises `SetupError`."""
    async with _open_embedder(order) as embedder:
        run = _run_of(order, survey, embedder)
        with open_parts(order.output, run, embedder.dim) as parts, Bar(survey.rows) as bar:
            if parts.is_finished:
                return Done(run, embedder.dim, embedder.identity, "It was complete already.")
            cut = cut_parts(valid_records(source, survey.columns))
            try:
                await embed_parts(
                    cut, embedder, parts, bar, unit=source.unit, skips_invalid=order.wanted.skips_invalid
                )
            except (InvalidConfig, InvalidCorpus):
                raise
            except VecmillError as error:
                raise SetupError(
                    f"{error.message} What is embedded is kept, and the same command goes on with it."
                ) from error
    return Done(run, embedder.dim, embedder.identity, bar.summary())


def _assemble(order: Order, source: Source, survey: Survey, parts: Parts, done: Done) -> int:
    """Lay the parts end to end beside the columns that are kept; give the number of texts that have no row.

    Raises `SetupError`.
    """
    if hash_file(source.path) != survey.sha256:
        raise InvalidCorpus(
            f"{source.path} has changed since this began. Remove {parts.folder} to begin anew."
        )
    names = survey.columns.copies
    types = {name: kind for name, kind in source.types().items() if name in names}
    kind = order.treatment.kind
    about = {**done.identity, "dtype": kind}
    shape = Shape(done.dim, kind.dtype, survey.kinds, types, about)

    left_out = 0

    def write(path: Path) -> None:
        nonlocal left_out
        with open_output(path, shape) as output:
            records = show_steps(valid_records(source, survey.columns), "Writing", survey.rows)
            for part in cut_parts(records):
                kept = parts.read(part.number)
                left_out += len(kept.left_out)
                beside = part.without(kept.left_out)
                columns = {name: beside.column(index) for index, name in enumerate(names, 1)}
                output.write(kept.rows, columns)

    parts.finish(write)
    return left_out
