"""Brings a collection up to date with an input: what is embedded, written, deleted and left as it is.

Parts are embedded one after the other, so that a run that is killed loses one part at most; the texts of a
part are embedded together. A part is finished when the store has acknowledged its rows.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from vecmill.bulk.embedder import Embedder, EmbedParameters, Vectors
from vecmill.bulk.input_scan import InputScan, has_changed, valid_records
from vecmill.bulk.pipeline import EmbedProgress, embed_parts
from vecmill.bulk.records import InputPart, Record, cut_parts
from vecmill.bulk.sources import Source
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.stores.content_digests import ContentDigest
from vecmill.stores.row_index import RowIndex
from vecmill.stores.row_layout import InputIds, RowLayout
from vecmill.stores.vector_store import CollectionAbout, Distance, StoreRows, VectorStore
from vecmill.values.aliases import IntArray

PART_ROWS = 1024  # texts of a part, and rows of a call of the store


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What is done with a collection.

    `source` names where the rows come from. `deletes_vanished`: delete the rows of this source that are no
    longer in the input. `adopts`: write into a collection that vecmill did not make. `distance` is by default
    the model's.
    """

    source: str
    deletes_vanished: bool = False
    adopts: bool = False
    distance: Distance | None = None


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """What a run did: texts that were `embedded`, that got new columns (`updated`) or are `unchanged`.

    `deleted` counts rows of the collection, `vanished` those that could have been deleted. `skipped` rows of
    the input were left out.
    """

    embedded: int
    updated: int
    unchanged: int
    deleted: int
    vanished: int
    skipped: int
    dim: int


@dataclass(slots=True)
class StoreInput:
    """An input that was read once: its scan, its ids in `index`, and where the ids are."""

    source: Source
    scan: InputScan
    ids: InputIds
    index: RowIndex


class StoreWriter:
    """Writes embedded parts of an input to an open store. Satisfies `pipeline.EmbeddedParts`."""

    def __init__(
        self, store: VectorStore, layout: RowLayout, data: StoreInput, progress: EmbedProgress
    ) -> None:
        self.embedded = self.updated = self.unchanged = self.deleted = self.left_out = 0
        self._store = store
        self._layout = layout
        self._data = data
        self._progress = progress
        self._pending: dict[int, InputPart] = {}

    def parts(self) -> Iterator[InputPart]:
        """Return the texts that must be embedded, in parts. Writes columns that changed beside a vector."""
        for part in cut_parts(self._changed(), PART_ROWS):
            self._pending[part.number] = part
            yield part

    def contains(self, number: int, count: int) -> bool:
        """Return that a part is not stored: `parts` gives only texts that are not."""
        return False

    def write(
        self,
        number: int,
        embeddings: Vectors,
        left_out: Sequence[int],
        truncated_tokens: Sequence[int | None],
        chunks: IntArray | None,
    ) -> None:
        """Write the rows of a part, and delete rows of chunks that its texts no longer have."""
        part = self._pending.pop(number)
        ids = [self._layout.id_of(record) for record in part.records]
        self._data.index.leave_out(ids[at] for at in left_out)
        self.left_out += len(left_out)
        rows = self._layout.rows_of(part, left_out, chunks) if len(left_out) < len(part) else None
        if rows is not None:
            self._upsert(rows, embeddings)
        if self._layout.has_chunks and rows is not None:
            kept, out = set(rows.keys), {ids[at] for at in left_out}
            stored = self._data.index.stored([each for each in ids if each not in out])
            self._delete([row.key for each in stored.values() for row in each if row.key not in kept])
        self.embedded += len(part) - len(left_out)

    def delete_vanished(self) -> None:
        """Delete the rows of the source whose texts are not in the input."""
        for keys in self._data.index.vanished(self._layout.source, PART_ROWS):
            self._delete(keys)

    def count_vanished(self) -> int:
        """Return the number of rows that `delete_vanished` would delete."""
        return sum(map(len, self._data.index.vanished(self._layout.source, PART_ROWS)))

    def _upsert(self, rows: StoreRows, embeddings: Vectors) -> None:
        whole = StoreRows(rows.keys, rows.columns, embeddings)
        with self._store.reported():
            for some in whole.slices(PART_ROWS):
                self._store.upsert(some)

    def _delete(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), PART_ROWS):
            some = keys[at : at + PART_ROWS]
            with self._store.reported():
                self._store.delete(some)
            self.deleted += len(some)

    def _changed(self) -> Iterator[Record]:
        """Return the rows of the input whose vectors are not in the collection."""
        known = self._known()
        while records := list(islice(known, PART_ROWS)):
            stored = self._data.index.stored([self._layout.id_of(record) for record in records])
            changed, with_columns = [], []
            for record in records:
                found = stored[self._layout.id_of(record)]
                content = self._layout.content_of(record) if found else ""
                if not self._layout.is_embedded(content, found):
                    changed.append(record)
                    continue
                digest = self._layout.digest_of(record, content, len(found))
                if any(row.digest != digest for row in found):
                    with_columns.append((record, found))
            if with_columns:
                for some in self._layout.columns_of(with_columns).slices(PART_ROWS):
                    with self._store.reported():
                        self._store.update(some)
            self.updated += len(with_columns)
            self.unchanged += len(records) - len(changed) - len(with_columns)
            self._progress.add_existing(len(records) - len(changed))
            yield from changed

    def _known(self) -> Iterator[Record]:
        """Return the valid rows of the input as the scan found them: each id once."""
        ids, columns = self._data.ids, self._layout.columns
        for record in valid_records(self._data.source, columns):
            row_id = ids.id_of(record, columns)
            if row_id is not None and self._data.index.place_of(row_id) == record.place:
                yield record


async def fill_store(
    store: VectorStore,
    data: StoreInput,
    embedder: Embedder,
    parameters: EmbedParameters,
    options: StoreOptions,
    progress: EmbedProgress,
    *,
    skips_invalid: bool = False,
) -> StoreSummary:
    """Bring a collection up to date with an input. Raises `SetupError`, and the errors of `embed_parts`."""
    about = describe_collection(embedder, parameters, options)
    layout = RowLayout(
        data.ids,
        data.scan.columns,
        data.scan.column_types,
        ContentDigest.of(parameters, embedder.identity),
        options.source,
        parameters.gives_chunks,
    )
    is_complete = False
    try:
        await asyncio.to_thread(store.open, about, layout.store_columns, adopts=options.adopts)
        await asyncio.to_thread(_read_rows, store, data, options.source)
        writer = StoreWriter(store, layout, data, progress)
        await embed_parts(
            writer.parts(),
            embedder,
            writer,
            progress,
            unit=data.source.unit,
            skips_invalid=skips_invalid,
            parts_at_once=1,
        )
        if options.deletes_vanished:
            await asyncio.to_thread(_delete_vanished, writer, data)
        vanished = 0 if options.deletes_vanished else await asyncio.to_thread(writer.count_vanished)
        is_complete = True
    finally:
        await asyncio.to_thread(_close, store, is_complete)
    return StoreSummary(
        writer.embedded,
        writer.updated,
        writer.unchanged,
        writer.deleted,
        vanished,
        data.scan.skipped + writer.left_out,
        about.dim,
    )


def describe_collection(
    embedder: Embedder, parameters: EmbedParameters, options: StoreOptions
) -> CollectionAbout:
    """Return what the vectors of an embedder have in common. Raises `InvalidConfig` without a distance."""
    is_bits = parameters.kind.needs_bytes
    measure = options.distance or (Distance.HAMMING if is_bits else embedder.similarity)
    if measure is None:
        raise InvalidConfig(
            "The vectors are not normalised, and the server does not say how they are compared. Name the "
            "distance with --distance."
        )
    space = embedder.identity.get("space")
    return CollectionAbout(
        None if space is None else str(space),
        str(embedder.identity["name"]),
        embedder.dim * 8 if is_bits else embedder.dim,
        parameters.kind,
        Distance(measure),
        None if parameters.chunking is None else {**parameters.chunking.describe()},
        parameters.form,
    )


def _read_rows(store: VectorStore, data: StoreInput, source: str) -> None:
    """Note all rows of the collection. Raises `InvalidCorpus` for an id that another source has written."""
    with store.reported():
        data.index.add_stored(store.rows())
    conflict = data.index.find_conflict(source)
    if conflict is not None:
        row_id, place, other = conflict
        writer = "another program" if other is None else f"the source {other!r}"
        raise InvalidCorpus(
            f"{data.source.path}: {data.source.unit} {place} has the id {row_id!r}, which {store.shown} has "
            f"from {writer}, not from {source!r}. Name another column with --id-column, the other source "
            "with --source, or another collection."
        )


def _delete_vanished(writer: StoreWriter, data: StoreInput) -> None:
    if has_changed(data.source, data.scan):
        raise InvalidCorpus(
            f"{data.source.path} has changed since the start, so nothing is deleted. Run the same "
            "command again."
        )
    writer.delete_vanished()


def _close(store: VectorStore, is_complete: bool) -> None:
    with store.reported():
        store.close(is_complete=is_complete)
