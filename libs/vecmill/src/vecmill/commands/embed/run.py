"""The run of `vecmill embed`: scan the input, embed the missing parts, assemble the output."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from vecmill.bulk.chunk_table import CHUNK_COLUMNS, chunk_columns
from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import Embedder, EmbedParameters
from vecmill.bulk.input_scan import (
    ColumnOptions,
    ColumnType,
    InputScan,
    has_changed,
    scan_source,
    valid_records,
)
from vecmill.bulk.local import open_local
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.outputs import TRUNCATED, OutputSchema, check_output, open_output
from vecmill.bulk.pipeline import embed_parts
from vecmill.bulk.records import cut_parts
from vecmill.bulk.remote import open_remote
from vecmill.bulk.sources import Source
from vecmill.commands.embed.options import choose_model
from vecmill.commands.embed.parts import (
    PartStore,
    RunSettings,
    folder_of,
    has_finished_parts,
    open_part_store,
    refuse_existing,
)
from vecmill.commands.embed.progress import ProgressBar, show_progress
from vecmill.config import OnLongInput
from vecmill.errors import InvalidConfig, InvalidCorpus, SetupError, VecmillError
from vecmill.requests import Chunking, ChunkingMode, Purpose
from vecmill.stores.content_digests import ContentDigest
from vecmill.stores.earlier_output import (
    CONTENT_DIGEST,
    EarlierOutput,
    UpdatingEmbedder,
    check_earlier,
    check_updated,
)
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype

DONE, INTERRUPTED = 0, 130

# The names of identity values in error messages.
_WORDS = {
    "name": "model",
    "fingerprint": "content of the model",
    "space": "space of vectors",
    "exact": "computation of the vectors",
    "prompt_name": "name of the prompt",
}


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """The options of the command. `server` is a URL; without a URL this process embeds with `choice`.

    A server gets the name of the model of `choice` alone. `updates`: replace an output that exists, and take
    the vectors of texts that have not changed from it.
    """

    corpus: Path
    output: Path
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    parameters: EmbedParameters = field(default_factory=EmbedParameters)
    choice: EmbedModel = field(default_factory=EmbedModel)
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)
    updates: bool = False


@dataclass(frozen=True, slots=True)
class EmbedSummary:
    """The result of a run: `texts` embeddings of `dim` dimensions; `summary` is a sentence about the work.

    `truncated` texts were cut to the longest input of the model, and lost `truncated_tokens` together. If
    each chunk has an embedding, there are `chunks` of them.
    """

    texts: int
    skipped: int
    dim: int
    summary: str
    truncated: int = 0
    truncated_tokens: int = 0
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run with all parts stored: its settings, the embedder's `dim` and `identity`, and a summary."""

    run: RunSettings
    dim: int
    identity: Mapping[str, JsonValue]
    summary: str


def parse_options(corpus: Path, output: Path, options: Mapping[str, Any]) -> EmbedOptions:
    """Convert the options of the command line, which are given by name. Raises `SetupError`."""
    server = options["server"]
    if server is not None:
        refuse_engine_options(options)
    columns = parse_columns(options)
    parameters = replace(parse_parameters(options), chunking=parse_chunking(options))
    columns = replace(columns, picture_folder=options["picture_folder"])
    choice = choose_model(options)
    updates = options["updates"]
    return EmbedOptions(corpus, output, columns, parameters, choice, server, options["api_key"], updates)


def refuse_engine_options(options: Mapping[str, Any]) -> None:
    """Raise `InvalidConfig` if the command line has options of an engine, which a server chooses itself."""
    of_engines = ("config", "engine", "precision", "device", "cores", "trusts_code")
    if any(options[name] for name in of_engines):
        raise InvalidConfig(
            "--config, --engine, --precision, --device, --cores and --trust-remote-code have no effect with "
            "--server. Remove them."
        )


def parse_columns(options: Mapping[str, Any]) -> ColumnOptions:
    """Return the column options of the command line."""
    return ColumnOptions(
        options["text_column"],
        options["id_column"],
        options["copied_columns"],
        options["skips_invalid"],
        options["picture_column"],
    )


def parse_parameters(options: Mapping[str, Any]) -> EmbedParameters:
    """Return the settings of the embeddings that the command line sets."""
    purpose, on_long_input = options["purpose"], options["on_long_input"]
    return EmbedParameters(
        options["prompt_name"],
        None if purpose is None else Purpose(purpose),
        options["dimensions"],
        OutputDtype.FLOAT if options["dtype"] == "float32" else OutputDtype(options["dtype"]),
        None if on_long_input is None else OnLongInput(on_long_input),
    )


def parse_chunking(options: Mapping[str, Any]) -> Chunking | None:
    """Return the chunking that the command line asks for. Raises `InvalidConfig`."""
    mode, tokens, overlap = (options[name] for name in ("chunking", "chunk_tokens", "chunk_overlap"))
    sentences = options["chunk_sentences"]
    if mode is None:
        if tokens is not None or overlap is not None or sentences:
            raise InvalidConfig(
                "--chunk-tokens, --chunk-overlap and --chunk-sentences have no effect without --chunking."
            )
        return None
    if tokens is not None and (overlap or 0) >= tokens:
        raise InvalidConfig("--chunk-overlap must be less than --chunk-tokens.")
    return Chunking(ChunkingMode(mode), tokens, overlap or 0, sentences)


def describe_chunking(parameters: EmbedParameters) -> JsonValue:
    """Return the chunking as it is kept with the vectors."""
    return None if parameters.chunking is None else {**parameters.chunking.describe()}


def run_with_progress(options: EmbedOptions) -> int:
    """Embed with progress on standard error, and return the exit status. Raises `SetupError`."""
    try:
        result = embed_corpus(options)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        if has_finished_parts(options.output):
            click.echo(f"The finished parts are kept in {folder_of(options.output)}.", err=True)
            click.echo("The same command continues with them.", err=True)
        return INTERRUPTED
    left_out = f", {result.skipped:,} left out" if result.skipped else ""
    count = f"{result.texts:,} embeddings"
    if result.chunks:
        count = f"{result.chunks:,} embeddings of the chunks of {result.texts:,} texts,"
    written = f"{count} of {result.dim} dimensions{left_out}"
    limit = "the longest input of the model"
    cut = ""
    if result.truncated:
        cut = f" Texts cut to {limit}: {result.truncated:,}, by {result.truncated_tokens:,} tokens in all."
    click.echo(f"{options.output}: {written}.{cut} {result.summary}")
    return DONE


def embed_corpus(options: EmbedOptions) -> EmbedSummary:
    """Write the output, reusing the parts that an earlier run has stored.

    Runs an event loop of its own. Raises `SetupError`.
    """
    source = open_input(options.corpus)
    if options.output.resolve() == options.corpus.resolve():
        raise InvalidConfig(f"{options.output} is the input itself. Choose another output.")
    if options.corpus.is_dir() and options.output.resolve().is_relative_to(options.corpus.resolve()):
        raise InvalidConfig(f"{options.output} is in the folder of the input. Choose another output.")
    refuse_existing(options.output, updates=options.updates)
    check_output(options.output, options.columns, has_chunks=options.parameters.gives_chunks)
    if options.updates:
        check_updated(options.output, options.columns)
    scan = scan_source(
        source,
        options.columns,
        tell=partial(click.echo, err=True),
        watch=partial(show_progress, doing="Reading"),
    )
    if scan.columns.has_pictures:
        if options.updates:
            raise InvalidConfig("--update is for texts. Embed the pictures into another output.")
        options = replace(options, parameters=options.parameters.for_pictures())
    done = asyncio.run(_embed(options, source, scan))
    left_out, dropped, rows = 0, (0, 0), 0
    with open_part_store(options.output, done.run, done.dim) as store:
        if store.is_finished:
            store.remove()
        else:
            refuse_existing(options.output, updates=options.updates)
            left_out, dropped, rows = _assemble(options, source, scan, store, done)
    texts, skipped = scan.rows - left_out, scan.skipped + left_out
    chunks = rows if options.parameters.gives_chunks else None
    return EmbedSummary(texts, skipped, done.dim, done.summary, *dropped, chunks)


def _open_embedder(options: EmbedOptions) -> AbstractAsyncContextManager[Embedder]:
    if options.server is None:
        return open_local(options.choice, options.parameters)
    return open_remote(options.server, options.choice.model, options.parameters, key=options.api_key)


def _run_of(options: EmbedOptions, scan: InputScan, embedder: Embedder) -> RunSettings:
    """Return all settings that the parts depend on. The keys are the names for error messages."""
    parameters = options.parameters
    of_pictures = {"list of pictures": scan.files} if scan.columns.has_pictures else {}
    return {
        "version of vecmill": version("vecmill"),
        "input": scan.sha256,
        **of_pictures,
        **{_WORDS.get(name, name): value for name, value in embedder.identity.items()},
        "text column": scan.columns.text,
        # The skipped rows may depend on the copied columns.
        "choice of columns": list(scan.columns.copies) if scan.skipped else [],
        "number of rows left out": scan.skipped,
        "prompt": [parameters.prompt_name, parameters.purpose],
        "number of dimensions": embedder.dim,
        "dtype": parameters.kind,
        "on-long-input": parameters.on_long_input,
        "chunking": describe_chunking(parameters),
    }


async def _embed(options: EmbedOptions, source: Source, scan: InputScan) -> FinishedRun:
    """Embed and store the missing parts. Raises `SetupError`."""
    async with _open_embedder(options) as embedder:
        run = _run_of(options, scan, embedder)
        noun = "pictures" if scan.columns.has_pictures else "texts"
        where = "" if options.corpus.is_dir() else f"the column {scan.columns.text!r} of "
        click.echo(f"{scan.rows:,} {noun} from {where}{options.corpus}", err=True)
        bar_of_run = ProgressBar(scan.rows, noun=noun)
        with open_part_store(options.output, run, embedder.dim) as store, bar_of_run as bar:
            if store.is_finished:
                return FinishedRun(run, embedder.dim, embedder.identity, "The output was already complete.")
            cut = cut_parts(valid_records(source, scan.columns))
            try:
                with _open_earlier(options, scan, embedder, store) as updating:
                    await embed_parts(
                        cut,
                        updating,
                        store,
                        bar,
                        unit=source.unit,
                        skips_invalid=options.columns.skips_invalid,
                    )
            except asyncio.CancelledError:  # by Ctrl-C
                click.echo(f"\n{bar.interruption()}", err=True)
                raise
            except (InvalidConfig, InvalidCorpus):
                raise
            except VecmillError as error:
                raise SetupError(
                    f"{error.message} The finished parts are kept, and the same command continues with them."
                ) from error
    return FinishedRun(run, embedder.dim, embedder.identity, bar.summary())


@contextmanager
def _open_earlier(
    options: EmbedOptions, scan: InputScan, embedder: Embedder, store: PartStore
) -> Iterator[Embedder]:
    """Return an embedder that takes what it can from the output that exists, if it is updated."""
    if not options.updates or not options.output.exists():
        yield embedder
        return
    kind, digest = options.parameters.kind, ContentDigest.of(options.parameters, embedder.identity)
    about = check_earlier(options.output, embedder.identity, kind, embedder.dim)
    is_same = (about.get("chunking"), about.get("prompt_name")) == (
        describe_chunking(options.parameters),
        embedder.identity.get("prompt_name"),
    )
    if not is_same:
        yield embedder
        return
    earlier = EarlierOutput(options.output, store.folder, digest, scan.columns.text)
    with closing(earlier):
        yield UpdatingEmbedder(embedder, digest, earlier)


def _assemble(
    options: EmbedOptions, source: Source, scan: InputScan, store: PartStore, run: FinishedRun
) -> tuple[int, tuple[int, int], int]:
    """Join the parts and the copied columns.

    Returns the number of texts without an embedding, the numbers of truncated texts and of the tokens that
    they lost, and the number of embeddings. Raises `SetupError`.
    """
    if has_changed(source, scan):
        raise InvalidCorpus(
            f"{source.path} has changed since the start. Remove {store.folder} to start again."
        )
    names = scan.columns.copies
    types = {name: kind for name, kind in source.arrow_types().items() if name in names}
    kind = options.parameters.kind
    about = {**run.identity, "dtype": kind}
    has_chunks = options.parameters.gives_chunks
    if options.parameters.chunking is not None:
        about["chunking"] = describe_chunking(options.parameters)
    # Nothing is cut off a text that is cut into chunks.
    added = dict(CHUNK_COLUMNS) if has_chunks else {TRUNCATED: ColumnType.INTEGER}
    digest = ContentDigest.of(options.parameters, run.identity) if options.updates else None
    if digest is not None:
        added[CONTENT_DIGEST] = ColumnType.TEXT
    shape = OutputSchema(run.dim, kind.dtype, {**scan.column_types, **added}, types, about)

    left_out = texts = tokens = rows = 0

    def write(path: Path) -> None:
        nonlocal left_out, texts, tokens, rows
        with open_output(path, shape) as output:
            records = show_progress(valid_records(source, scan.columns), "Writing", scan.rows)
            for part in cut_parts(records):
                stored = store.read(part.number)
                left_out += len(stored.left_out)
                rows += len(stored.embeddings)
                if has_chunks:
                    columns = chunk_columns(part, stored.chunks, names)
                    rows_of = [] if stored.chunks is None else stored.chunks[:, 0].tolist()
                    output.write(
                        stored.embeddings, columns | _digests(digest, map(part.texts.__getitem__, rows_of))
                    )
                    continue
                dropped = [each or 0 for each in stored.truncated_tokens]
                texts, tokens = texts + sum(map(bool, dropped)), tokens + sum(dropped)
                beside = part.without(stored.left_out)
                columns = {name: beside.column(index) for index, name in enumerate(names, 1)}
                columns[TRUNCATED] = stored.truncated_tokens
                output.write(stored.embeddings, columns | _digests(digest, beside.texts))

    store.finish(write)
    return left_out, (texts, tokens), rows


def _digests(digest: ContentDigest | None, texts: Iterable[str]) -> dict[str, Sequence[object]]:
    """Return the column of the digests of texts, if the output has one."""
    return {} if digest is None else {CONTENT_DIGEST: [digest.of_text(text) for text in texts]}
