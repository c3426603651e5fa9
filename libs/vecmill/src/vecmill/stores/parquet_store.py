"""A Parquet file as a store: rows are replaced by their ids, and the file is swapped for a whole new one.

Until a run ends, its changes are in a folder beside the file, numbered in their order. A run that is killed
leaves this folder, and the next run reads it on top of the file. To apply changes twice changes nothing.
"""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, BinaryIO

from vecmill.bulk.durable_files import write_durably
from vecmill.bulk.embedder import Vectors
from vecmill.bulk.input_files import BUFFER_BYTES, import_arrow
from vecmill.bulk.input_scan import ColumnType
from vecmill.bulk.outputs import OutputSchema, ParquetOutput, arrow_type
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
)
from vecmill.values.json_text import decode_json
from vecmill.values.output_kinds import OutputDtype

_READ_ROWS = 1024
_ROWS, _COLUMNS, _DELETED = "rows.parquet", "columns.json", "deleted.json"
_CHANGE = re.compile(r"(\d{8})-(rows\.parquet|columns\.json|deleted\.json)")
_FROM_FILE = 0  # the number of the change that a row of the file is from

# Of each row that was changed, the number of the last change of its vector, and the columns it got since.
_CHANGED = "CREATE TABLE changed (key TEXT PRIMARY KEY, number INTEGER, columns TEXT) WITHOUT ROWID"
_REPLACE_COLUMNS = (
    "INSERT INTO changed VALUES (?, 0, ?) ON CONFLICT (key) DO UPDATE SET columns = excluded.columns"
)


class ParquetStore(VectorStore):
    """A file of rows. `place` is its path."""

    name = "Parquet"
    extra = "corpus"
    dtypes = tuple(OutputDtype)
    distances = tuple(Distance)

    _lock: BinaryIO | None = None
    _about: CollectionAbout | None = None
    _changes = 0  # the number of the last one

    def connect(self) -> None:
        """Lock the folder of changes; see `VectorStore.connect`."""
        self._arrow = import_arrow()
        self._path = Path(self.place)
        if not self._path.parent.is_dir():
            raise InvalidConfig(f"There is no folder {self._path.parent}.")
        self._folder = self._path.with_name(f"{self._path.name}.changes")
        self._lock = lock_collection(self._folder / "lock", self.shown)
        self._types: dict[str, Any] = {ID: self._arrow.string()}
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(_CHANGED)

    def find(self) -> FoundCollection | None:
        """Return what is in the file and in the changes that a run has left; see `VectorStore.find`."""
        files = [self._path] if self._path.exists() else []
        for number, kind, path in self._list_changes():
            self._changes = number
            files += [path] if kind == _ROWS else []
            self._note(number, kind, path)
        for path in files:
            self._read_schema(path)
        return FoundCollection(self._about, is_empty=False) if files else None

    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Note what the file will have; see `VectorStore.create`."""
        self._about = about
        self.extend(columns)

    def describe(self, about: CollectionAbout) -> None:
        """Note what the file will have; see `VectorStore.describe`."""
        self._about = about

    def extend(self, columns: Mapping[str, ColumnType]) -> None:
        """Note columns that the file lacks; see `VectorStore.extend`."""
        for name, kind in columns.items():
            self._types.setdefault(name, arrow_type(self._arrow, kind))

    def rows(self) -> Iterator[StoredRow]:
        """Return all rows; see `VectorStore.rows`."""
        names = [ID, DOCUMENT if DOCUMENT in self._types else ID, SOURCE, DIGEST]
        for columns, _ in self._current(list(dict.fromkeys(names))):
            yield from map(StoredRow, *(columns[name] for name in names))

    def upsert(self, rows: StoreRows) -> None:
        """Write a file of rows; see `VectorStore.upsert`."""
        assert rows.vectors is not None
        vectors, columns = rows.vectors, {ID: rows.keys, **rows.columns}
        number = self._add(_ROWS, lambda file: self._write_rows(file, list(columns), [(columns, vectors)]))
        self._note_rows(number, rows.keys)

    def update(self, rows: StoreRows) -> None:
        """Write a file of columns; see `VectorStore.update`."""
        columns = dict(zip(rows.keys, rows.payloads(), strict=True))
        self._add(_COLUMNS, lambda file: file.write(json.dumps(columns).encode()))
        self._note_columns(columns)

    def delete(self, keys: Sequence[str]) -> None:
        """Write a file of keys; see `VectorStore.delete`."""
        self._note_rows(self._add(_DELETED, lambda file: file.write(json.dumps([*keys]).encode())), keys)

    def close(self, *, is_complete: bool) -> None:
        """Write the new file, swap it in, and remove the changes; see `VectorStore.close`."""
        if self._lock is None:
            return
        with self._lock:
            if is_complete:
                if self._changes or not self._path.exists():
                    names = list(self._types)
                    write_durably(
                        self._path,
                        lambda file: self._write_rows(file, names, self._current([*names, VECTOR])),
                    )
                shutil.rmtree(self._folder, ignore_errors=True)
            self._database.close()

    def _list_changes(self) -> list[tuple[int, str, Path]]:
        found = ((_CHANGE.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match[1]), match[2], path) for match, path in found if match)

    def _add(self, kind: str, write: Callable[[IO[bytes]], object]) -> int:
        self._changes += 1
        write_durably(self._folder / f"{self._changes:08}-{kind}", write)
        return self._changes

    def _note(self, number: int, kind: str, path: Path) -> None:
        """Note what a change of an earlier run says."""
        if kind == _COLUMNS:
            self._note_columns(decode_json(path.read_bytes()))
        elif kind == _DELETED:
            self._note_rows(number, decode_json(path.read_bytes()))
        else:
            with self._open(path) as file:
                self._note_rows(number, file.read(columns=[ID]).column(ID).to_pylist())

    def _note_rows(self, number: int, keys: Sequence[str]) -> None:
        with self._database:
            self._database.execute("BEGIN")
            values = ((key, number) for key in keys)
            self._database.executemany("INSERT OR REPLACE INTO changed VALUES (?, ?, NULL)", values)

    def _note_columns(self, columns: Mapping[str, Mapping[str, Any]]) -> None:
        with self._database:
            self._database.execute("BEGIN")
            values = ((key, json.dumps(each)) for key, each in columns.items())
            self._database.executemany(_REPLACE_COLUMNS, values)

    def _read_schema(self, path: Path) -> None:
        """Note the columns and the description of a file. Raises `InvalidConfig` for other files."""
        with self._open(path) as file:
            schema = file.schema_arrow
        self._about = CollectionAbout.from_json((schema.metadata or {}).get(ABOUT.encode()))
        if self._about is None or not {ID, VECTOR, SOURCE, DIGEST} <= set(schema.names):
            raise InvalidConfig(
                f"{path} has no ids and digests of `vecmill embed --to`, so what has changed is not known. "
                "Choose another file, or bring a file of `vecmill embed -o` up to date with --update."
            )
        self._types |= {field.name: field.type for field in schema if field.name != VECTOR}

    def _current(self, names: Sequence[str]) -> Iterator[tuple[dict[str, list[Any]], Vectors]]:
        """Return the rows in batches: values of each column but that of the vectors, and the vectors."""
        files = [(_FROM_FILE, self._path)] if self._path.exists() else []
        files += [(number, path) for number, kind, path in self._list_changes() if kind == _ROWS]
        for number, path in files:
            with self._open(path) as file:
                held = [name for name in names if name in file.schema_arrow.names]
                for batch in file.iter_batches(batch_size=_READ_ROWS, columns=held):
                    yield self._newest(batch, number, names)

    def _newest(self, batch: Any, number: int, names: Sequence[str]) -> tuple[dict[str, list[Any]], Vectors]:
        """Return the rows of a batch that no later change has replaced, with their newest columns."""
        keys = batch.column(batch.schema.get_field_index(ID)).to_pylist()
        states = [self._state(key) for key in keys]
        kept = [at for at, (last, _) in enumerate(states) if last == number]
        batch = batch.take(self._arrow.array(kept, self._arrow.int64()))
        replaced = [decode_json(states[at][1] or "{}") for at in kept]
        columns = {}
        for name in names:
            if name == VECTOR:
                continue
            place = batch.schema.get_field_index(name)
            values = [None] * len(kept) if place < 0 else batch.column(place).to_pylist()
            columns[name] = [each.get(name, value) for each, value in zip(replaced, values, strict=True)]
        vectors = batch.column(batch.schema.get_field_index(VECTOR)).flatten() if VECTOR in names else []
        return columns, self._array(vectors, len(kept))

    def _array(self, vectors: Any, rows: int) -> Vectors:
        import numpy as np

        return np.asarray(vectors).reshape(rows, -1) if rows else np.zeros((0, 1))

    def _state(self, key: str) -> tuple[int, str | None]:
        """Return the last change of the vector of a row, and the columns that it got since."""
        query = "SELECT number, columns FROM changed WHERE key = ?"
        found: tuple[int, str | None] | None = self._database.execute(query, (key,)).fetchone()
        return found or (_FROM_FILE, None)

    def _write_rows(
        self,
        file: IO[bytes],
        names: Sequence[str],
        batches: Iterable[tuple[Mapping[str, Sequence[Any]], Vectors]],
    ) -> None:
        about = self._about
        assert about is not None
        size = about.dim // 8 if about.dtype.needs_bytes else about.dim
        schema = OutputSchema(
            size,
            about.dtype.dtype,
            dict.fromkeys(names, ColumnType.TEXT),
            {name: self._types[name] for name in names},
            {"name": about.model, **asdict(about)},
        )
        with ParquetOutput(file, schema) as output:
            for columns, vectors in batches:
                if len(vectors):
                    output.write(vectors, columns)

    def _open(self, path: Path) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
