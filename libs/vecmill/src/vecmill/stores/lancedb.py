"""LanceDB: a table in a folder, or at an address that its client knows.

What vecmill keeps is in the metadata of the field of the vectors. LanceDB excludes no second writer, so a
table in a folder is locked by a file beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vecmill.bulk.input_files import import_arrow
from vecmill.bulk.input_scan import ColumnType
from vecmill.bulk.outputs import arrow_type
from vecmill.errors import InvalidConfig
from vecmill.stores.lock_files import lock_collection
from vecmill.stores.vector_store import (
    ABOUT,
    DIGEST,
    DOCUMENT,
    ID,
    SOURCE,
    VECTOR,
    CollectionAbout,
    Distance,
    FoundCollection,
    StoredRow,
    StoreRows,
    VectorStore,
    import_client,
)
from vecmill.values.output_kinds import OutputDtype

_READ_ROWS = 8192
# Each call of the store adds a file and a version of the table.
_CALLS_PER_TIDYING = 200


class LanceStore(VectorStore):
    """A table of LanceDB."""

    name = "LanceDB"
    extra = "lancedb"
    dtypes = (OutputDtype.FLOAT, OutputDtype.UBINARY)
    distances = (Distance.COSINE, Distance.DOT, Distance.EUCLIDEAN, Distance.HAMMING)
    secret_variables = ("LANCEDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY")

    _table: Any = None
    _lock: BinaryIO | None = None
    _calls = 0

    def connect(self) -> None:
        """Open the database; see `VectorStore.connect`."""
        self._arrow = import_arrow()
        client = import_client("lancedb")
        if "://" not in self.place:
            self._lock = lock_collection(Path(self.place, f".{self.collection}.vecmill-lock"), self.shown)
        self._database = client.connect(self.place)

    def find(self) -> FoundCollection | None:
        """Return the table; see `VectorStore.find`."""
        try:
            self._table = self._database.open_table(self.collection)
        except (FileNotFoundError, ValueError) as error:
            if "not found" not in str(error):
                raise
            return None
        schema = self._table.schema
        if VECTOR not in schema.names or ID not in schema.names:
            raise InvalidConfig(f"{self.shown} lacks the columns {ID!r} and {VECTOR!r} of vecmill.")
        field = schema.field(VECTOR)
        about = (field.metadata or {}).get(ABOUT.encode())
        size = getattr(field.type, "list_size", None)
        is_bytes = size is not None and self._arrow.types.is_uint8(field.type.value_type)
        return FoundCollection(
            CollectionAbout.from_json(about),
            is_empty=self._table.count_rows() == 0,
            dim=size * 8 if is_bytes and size else size,
        )

    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Make the table; see `VectorStore.create`."""
        arrow = self._arrow
        numbers = arrow.from_numpy_dtype(about.dtype.dtype)
        size = about.dim // 8 if about.dtype.needs_bytes else about.dim
        vector = arrow.field(VECTOR, arrow.list_(numbers, size), metadata={ABOUT: about.to_json()})
        fields = [arrow.field(name, arrow_type(arrow, kind)) for name, kind in columns.items()]
        schema = arrow.schema([arrow.field(ID, arrow.string()), *fields, vector])
        self._table = self._database.create_table(self.collection, schema=schema)

    def describe(self, about: CollectionAbout) -> None:
        """Keep `about` in the metadata of the vectors; see `VectorStore.describe`."""
        self._table.update_field_metadata({VECTOR: {ABOUT: about.to_json()}})

    def extend(self, columns: Mapping[str, ColumnType]) -> None:
        """Add columns; see `VectorStore.extend`."""
        known = self._table.schema.names
        added = {name: kind for name, kind in columns.items() if name not in known}
        if added:
            arrow = self._arrow
            self._table.add_columns(
                arrow.schema([arrow.field(name, arrow_type(arrow, kind)) for name, kind in added.items()])
            )

    def rows(self) -> Iterator[StoredRow]:
        """Return all rows; see `VectorStore.rows`."""
        has_chunks = DOCUMENT in self._table.schema.names
        names = [ID, DOCUMENT if has_chunks else ID, SOURCE, DIGEST]
        found = self._table.search().select(list(dict.fromkeys(names))).to_batches(_READ_ROWS)
        for batch in found:
            values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
            yield from map(StoredRow, *values)

    def upsert(self, rows: StoreRows) -> None:
        """Write rows in one version of the table; see `VectorStore.upsert`."""
        assert rows.vectors is not None
        flat = self._arrow.array(np.ascontiguousarray(rows.vectors).reshape(-1))
        vectors = self._arrow.FixedSizeListArray.from_arrays(flat, rows.vectors.shape[1])
        found = self._join(rows, {VECTOR: vectors})
        merge = self._table.merge_insert(ID).when_matched_update_all().when_not_matched_insert_all()
        self._tidy_after(merge.execute(found))

    def update(self, rows: StoreRows) -> None:
        """Replace columns; see `VectorStore.update`."""
        self._tidy_after(self._table.merge_insert(ID).when_matched_update_all().execute(self._join(rows, {})))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows; see `VectorStore.delete`."""
        quoted = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
        self._tidy_after(self._table.delete(f"{ID} IN ({quoted})"))

    def close(self, *, is_complete: bool) -> None:
        """Join the small files of the table and unlock it; see `VectorStore.close`."""
        try:
            if is_complete and self._calls:
                self._table.optimize()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _join(self, rows: StoreRows, more: Mapping[str, Any]) -> Any:
        schema = self._table.schema
        columns = {
            name: self._arrow.array(values, schema.field(name).type)
            for name, values in {ID: rows.keys, **rows.columns}.items()
        }
        return self._arrow.table({**columns, **more})

    def _tidy_after(self, _done: object) -> None:
        self._calls += 1
        if self._calls % _CALLS_PER_TIDYING == 0:
            self._table.optimize()
