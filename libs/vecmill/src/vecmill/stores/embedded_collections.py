"""Brings a collection up to date with texts, for `vecmill embed --to` and for programs."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import Embedder, EmbeddingForm, EmbedParameters
from vecmill.bulk.input_scan import ColumnOptions, choose_columns, scan_source
from vecmill.bulk.local import open_local
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.pipeline import EmbedProgress
from vecmill.bulk.records import Record
from vecmill.bulk.remote import open_remote
from vecmill.bulk.sources import RowSequence, Source
from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.requests import Chunking, Purpose
from vecmill.stores.addresses import find_store
from vecmill.stores.row_index import RowIndex
from vecmill.stores.row_layout import InputIds
from vecmill.stores.store_writer import StoreInput, StoreOptions, StoreSummary, fill_store
from vecmill.stores.vector_store import Distance
from vecmill.values.output_kinds import OutputDtype


@dataclass(frozen=True, slots=True)
class StoreJob:
    """One run: from which texts, with which model, into which collection.

    `server` is a URL; without a URL this process embeds with `choice`.
    """

    corpus: Source
    address: str
    options: StoreOptions
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    parameters: EmbedParameters = field(default_factory=EmbedParameters)
    choice: EmbedModel = field(default_factory=EmbedModel)
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class JobDisplay:
    """What shows a run: `tell` is called with lines, `watch` sees all rows, `start` begins to count texts."""

    tell: Callable[[str], object]
    watch: Callable[[Iterable[Record]], Iterable[Record]]
    start: Callable[[int], EmbedProgress]


class _Silence:
    """Counts nothing. Satisfies `pipeline.EmbedProgress`."""

    def add_existing(self, texts: int) -> None:
        """Ignore texts."""

    def add_embedded(self, texts: int, tokens: int) -> None:
        """Ignore texts."""


SILENT = JobDisplay(lambda line: None, lambda records: records, lambda texts: _Silence())


def run_job(job: StoreJob, display: JobDisplay = SILENT) -> StoreSummary:
    """Run a job, in an event loop of its own. Raises `SetupError`."""
    store = find_store(job.address)
    refuse_form(job)
    columns = choose_columns(job.corpus, job.columns)
    if columns.has_pictures:
        job = replace(job, parameters=job.parameters.for_pictures())
    ids = InputIds.of(columns, job.columns)
    with closing(RowIndex()) as index:
        scan = scan_source(
            job.corpus,
            job.columns,
            tell=display.tell,
            watch=lambda records: ids.watch(display.watch(records), columns, index, job.corpus.unit),
        )

        async def work() -> StoreSummary:
            async with _open_embedder(job) as embedder:
                return await fill_store(
                    store,
                    StoreInput(job.corpus, scan, ids, index),
                    embedder,
                    job.parameters,
                    job.options,
                    display.start(scan.rows),
                    skips_invalid=job.columns.skips_invalid,
                )

        return asyncio.run(work())


def refuse_form(job: StoreJob) -> None:
    """Raise `InvalidConfig` if a job asks for vectors of a form that does not go with its other settings."""
    parameters = job.parameters
    if parameters.form is EmbeddingForm.DENSE:
        return
    others = (
        ("--server", job.server),
        ("--chunking", parameters.chunking),
        ("--dimensions", parameters.dimensions),
        ("--dtype", parameters.kind is not OutputDtype.FLOAT),
    )
    for name, is_given in others:
        if is_given:
            raise InvalidConfig(f"{name} is for dense vectors, not for --vectors {parameters.form}.")


def _open_embedder(job: StoreJob) -> AbstractAsyncContextManager[Embedder]:
    if job.server is None:
        return open_local(job.choice, job.parameters)
    return open_remote(job.server, job.choice.model, job.parameters, key=job.api_key)


def embed_to_store(  # noqa: PLR0913  the options of the command, by name
    corpus: str | Path | Sequence[Mapping[str, Any]],
    to: str,
    *,
    source: str | None = None,
    model: str | Path | None = None,
    config: MillConfig | None = None,
    server: str | None = None,
    api_key: str | None = None,
    text_column: str | None = None,
    picture_column: str | None = None,
    picture_folder: str | Path | None = None,
    id_column: str | None = None,
    copy_columns: Sequence[str] = (),
    skip_invalid: bool = False,
    prompt_name: str | None = None,
    purpose: Purpose | str | None = None,
    dimensions: int | None = None,
    dtype: OutputDtype | str = OutputDtype.FLOAT,
    chunking: Chunking | None = None,
    delete_vanished: bool = False,
    adopt: bool = False,
    distance: str | None = None,
    vectors: str = EmbeddingForm.DENSE,
) -> StoreSummary:
    """Bring a collection of a store up to date with texts or pictures, as `vecmill embed --to` does.

    `corpus` is a file of JSON lines, CSV or Parquet, a folder of text files or of pictures, or a sequence of
    rows, each with a text under `text`, or a picture under `picture_column`. `to` is the address of the
    collection, such as `lancedb:./db/docs`. `source` names where the rows come from, by default the name of
    the file. Only rows whose content has changed are embedded. Raises `SetupError`. May be called where an
    event loop runs, and then blocks it.
    """
    if isinstance(copy_columns, str):
        raise InvalidConfig("copy_columns must be a sequence of names, not one string.")
    rows = open_input(Path(corpus)) if isinstance(corpus, str | Path) else RowSequence(corpus)
    parameters = EmbedParameters(
        prompt_name,
        None if purpose is None else _choose(Purpose, purpose, "purpose"),
        dimensions,
        OutputDtype.FLOAT if dtype == "float32" else _choose(OutputDtype, dtype, "dtype"),
        chunking=chunking,
        form=_choose(EmbeddingForm, vectors, "vectors"),
    )
    options = StoreOptions(
        name_source(corpus if isinstance(corpus, str | Path) else None, source, delete_vanished),
        delete_vanished,
        adopt,
        None if distance is None else _choose(Distance, distance, "distance"),
    )
    folder = None if picture_folder is None else Path(picture_folder)
    columns = ColumnOptions(text_column, id_column, tuple(copy_columns), skip_invalid, picture_column, folder)
    choice = EmbedModel(None if model is None else str(model), config or MillConfig())
    job = StoreJob(rows, to, options, columns, parameters, choice, server, api_key)
    # A thread of its own, since a notebook runs an event loop in this one.
    with ThreadPoolExecutor(1, "vecmill-store") as thread:
        return thread.submit(partial(run_job, job)).result()


def name_source(corpus: str | Path | None, source: str | None, deletes_vanished: bool) -> str:
    """Return the name of the source of rows.

    Raises `InvalidConfig` if it is not named although rows are deleted, which another input of the same file
    name may have written, or although there is no file.
    """
    if source:
        return source
    if corpus is None or deletes_vanished:
        reason = "rows are deleted by their source" if deletes_vanished else "the rows have no file name"
        raise InvalidConfig(f"Name the source of the rows with --source (source=): {reason}.")
    return Path(corpus).name


def _choose(kind: Any, value: Any, name: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(each.value for each in kind)
        raise InvalidConfig(f"{name} is {value!r}; it must be one of {choices}.") from error
