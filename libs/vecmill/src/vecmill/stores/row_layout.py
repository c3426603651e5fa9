"""How rows of an input become rows of a collection: their ids, columns and digests."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.bulk.chunk_table import CHUNK_COLUMNS
from vecmill.bulk.input_scan import ID_COLUMN, ColumnOptions, Columns, ColumnType
from vecmill.bulk.records import InputPart, Record
from vecmill.errors import InvalidConfig
from vecmill.stores.content_digests import ContentDigest, digest_columns, id_of_input, storable
from vecmill.stores.row_index import RowIndex
from vecmill.stores.vector_store import DIGEST, DOCUMENT, OWN_COLUMNS, SOURCE, StoredRow, StoreRows
from vecmill.values.aliases import IntArray

# Without the line or row in the input: it changes with other rows of the input.
CHUNK_PLACES = tuple(CHUNK_COLUMNS)[1:]


@dataclass(frozen=True, slots=True)
class InputIds:
    """Where the ids of an input are: the column of ids, or `None` if they are digests of the texts."""

    column: str | None

    @classmethod
    def of(cls, columns: Columns, options: ColumnOptions) -> "InputIds":
        """Return where the ids are. Raises `InvalidConfig` for copied columns that stores cannot have."""
        first = columns.copies[0] if columns.copies else None
        ids = cls(options.id_column or (ID_COLUMN if first == ID_COLUMN else None))
        for name in columns.copies:
            if name != ids.column and (name in OWN_COLUMNS or name in (DOCUMENT, *CHUNK_PLACES)):
                raise InvalidConfig(f"The column {name!r} is one of vecmill's own, so it cannot be copied.")
        return ids

    def id_of(self, record: Record, columns: Columns) -> str | None:
        """Return the id of a row as text, `None` if it has none or one that is no string and no integer."""
        if self.column is None:
            return id_of_input(record.values[0])
        found = record.values[columns.names.index(self.column, 1)]
        if isinstance(found, str) and found:
            return found
        return str(found) if isinstance(found, int) and not isinstance(found, bool) else None

    def watch(
        self, records: Iterable[Record], columns: Columns, index: RowIndex, unit: str
    ) -> Iterator[Record]:
        """Return the rows and note their ids; a row without an id, or with that of another, has a problem."""
        for record in records:
            problem = record.problem
            if problem is None:
                row_id = self.id_of(record, columns)
                if row_id is None:
                    problem = f"has no string and no integer in the column of ids, {self.column!r}"
                elif (place := index.add_input(row_id, record.place)) is not None:
                    kind = "text" if isinstance(record.values[0], str) else "picture"
                    same = kind if self.column is None else f"id {row_id!r}"
                    problem = f"has the same {same} as {unit} {place}"
            yield record if problem is None else Record(record.place, problem=problem)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The rows of a collection that are made from an input. `columns` are the columns to read."""

    ids: InputIds
    columns: Columns
    column_types: Mapping[str, ColumnType]
    digest: ContentDigest
    source: str
    has_chunks: bool

    @property
    def payload(self) -> tuple[str, ...]:
        """The copied columns. The ids are in a column of their own."""
        return tuple(name for name in self.columns.copies if name != self.ids.column)

    @property
    def store_columns(self) -> dict[str, ColumnType]:
        """All columns of a row but its id and its vector, with their types."""
        places = dict.fromkeys(CHUNK_PLACES, ColumnType.INTEGER) if self.has_chunks else {}
        documents = {DOCUMENT: ColumnType.TEXT} if self.has_chunks else {}
        own = {SOURCE: ColumnType.TEXT, DIGEST: ColumnType.TEXT, **documents, **places}
        return own | {name: self.column_types[name] for name in self.payload}

    def id_of(self, record: Record) -> str:
        """Return the id of a row of the input; rows without one were left out before."""
        found = self.ids.id_of(record, self.columns)
        assert found is not None
        return found

    def values_of(self, record: Record) -> tuple[Any, ...]:
        """Return the copied values of a row, as stores have them."""
        return tuple(
            _convert(record.values[self.columns.names.index(name, 1)], self.column_types[name])
            for name in self.payload
        )

    def content_of(self, record: Record) -> str:
        """Return the digest of the text or picture of a row. Raises as `PictureFile.read` does."""
        return self.digest.of_input(record.values[0])

    def digest_of(self, record: Record, content: str, chunks: int) -> str:
        """Return the digest of a row with this content, or of each of so many chunks of it."""
        digest = f"{content}-{digest_columns(self.payload, self.values_of(record))}"
        return f"{digest}-{chunks}" if self.has_chunks else digest

    def is_embedded(self, content: str, stored: Sequence[StoredRow]) -> bool:
        """Return whether the rows of a text are all there, and made from this content."""
        parts = [(row.digest or "").split("-") for row in stored]
        expected = [content, *([str(len(stored))] if self.has_chunks else [])]
        return bool(stored) and all([found, *chunks[1:]] == expected for found, *chunks in parts)

    def rows_of(self, part: InputPart, left_out: Sequence[int], table: IntArray | None) -> StoreRows:
        """Return the rows of an embedded part, without their vectors."""
        if not self.has_chunks:
            records = part.without(left_out).records
            return self._join(records, [self.id_of(record) for record in records], [1] * len(records), {})
        assert table is not None
        texts = table[:, 0].tolist()
        records = [part.records[index] for index in texts]
        chunks = Counter(texts)
        counts = [chunks[index] for index in texts]
        documents = [self.id_of(record) for record in records]
        places = {name: table[:, column].tolist() for column, name in enumerate(CHUNK_PLACES, 1)}
        keys = [
            f"{document}#{chunk}" for document, chunk in zip(documents, table[:, 1].tolist(), strict=True)
        ]
        return self._join(records, keys, counts, {DOCUMENT: documents, **places})

    def columns_of(self, texts: Sequence[tuple[Record, Sequence[StoredRow]]]) -> StoreRows:
        """Return the rows that texts have in the collection, with their columns as they are now."""
        records = [record for record, stored in texts for _ in stored]
        counts = [len(stored) for _, stored in texts for _ in stored]
        return self._join(records, [row.key for _, stored in texts for row in stored], counts, {})

    def _join(
        self,
        records: Sequence[Record],
        keys: Sequence[str],
        chunks: Sequence[int],
        places: Mapping[str, Sequence[Any]],
    ) -> StoreRows:
        values = [self.values_of(record) for record in records]
        digests = [
            self.digest_of(record, self.content_of(record), count)
            for record, count in zip(records, chunks, strict=True)
        ]
        columns: dict[str, Sequence[Any]] = {SOURCE: [self.source] * len(keys), DIGEST: digests, **places}
        columns |= {name: [row[at] for row in values] for at, name in enumerate(self.payload)}
        return StoreRows(keys, columns)


def _convert(value: Any, kind: ColumnType) -> Any:
    """Return a copied value as a column of this type has it."""
    found = storable(value)
    if found is None or isinstance(found, str):
        return found
    if kind is ColumnType.FLOAT:
        return float(found)
    return json.dumps(found) if kind is ColumnType.MIXED else found
