"""The SQLite database of the store: its schema, its migration, its transactions, and its rows."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill_server.base.errors import UnknownObject
from vecmill_server.base.json_io import decode_object
from vecmill_server.base.transactions import run_transaction
from vecmill_server.batches.objects import (
    OPEN_STATUSES,
    BatchObject,
    BatchStatus,
    FileObject,
    FilePurpose,
    LineError,
    Page,
)

# Incremented when a table changes. A newer version is refused, and an older version is migrated.
VERSION = 2
SCHEMA = """
CREATE TABLE files (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, purpose TEXT NOT NULL,
    filename TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
    owner TEXT NOT NULL
);
CREATE TABLE batches (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, endpoint TEXT NOT NULL,
    input_file_id TEXT NOT NULL, completion_window TEXT NOT NULL, status TEXT NOT NULL, ending TEXT NOT NULL,
    metadata TEXT NOT NULL, errors TEXT NOT NULL, output_file_id TEXT NOT NULL, error_file_id TEXT NOT NULL,
    output_expires_after_s INTEGER, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER, expired_at
    INTEGER, cancelling_at INTEGER, cancelled_at INTEGER, total INTEGER NOT NULL DEFAULT 0, completed INTEGER
    NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0, lines_done
    INTEGER NOT NULL DEFAULT 0, input_offset INTEGER NOT NULL DEFAULT 0, output_bytes INTEGER NOT NULL
    DEFAULT 0, error_bytes INTEGER NOT NULL DEFAULT 0, owner TEXT NOT NULL
); CREATE INDEX batches_by_status ON batches (status);
"""
# Added in version 2, also to new databases. A deleted file keeps its place in lists, for clients that read
# the next page after it.
_OWNERS = """
CREATE INDEX files_by_owner ON files (owner, place);
CREATE INDEX batches_by_owner ON batches (owner, place);
CREATE TABLE deleted_files (
    id TEXT PRIMARY KEY, place INTEGER NOT NULL, owner TEXT NOT NULL, deleted_at INTEGER NOT NULL
) WITHOUT ROWID;
"""
SCHEMA += _OWNERS
# The statements that change a database of an earlier version to the next one. Files and batches of version 1
# belong to the owner without a name.
MIGRATIONS = {
    1: """
ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE batches ADD COLUMN owner TEXT NOT NULL DEFAULT '';
"""
    + _OWNERS
}

# The statuses of open batches, for `IN`.
OPEN = f"({', '.join(repr(str(status)) for status in OPEN_STATUSES)})"

_FILE_COLUMNS = tuple(field.name for field in fields(FileObject))
_BATCH_COLUMNS = tuple(field.name for field in fields(BatchObject))


def read_file(row: sqlite3.Row) -> FileObject:
    """Return the file in a row of `files`."""
    values = {name: row[name] for name in _FILE_COLUMNS}
    return FileObject(**{**values, "purpose": FilePurpose(row["purpose"])})


def read_batch(row: sqlite3.Row) -> BatchObject:
    """Return the batch in a row of `batches`."""
    values = {name: row[name] for name in _BATCH_COLUMNS}
    errors = decode_object(row["errors"])["of"]
    values |= {
        "status": BatchStatus(row["status"]),
        "ending": BatchStatus(row["ending"]),
        "metadata": decode_object(row["metadata"])["of"],
        "errors": tuple(LineError(**error) for error in errors),
    }
    return BatchObject(**values)


class Database:
    """An open database. Use from one thread."""

    def __init__(self, path: Path) -> None:
        """Open the database, and migrate it from an earlier version.

        Raises `InvalidConfig` if the database is of a newer version. Raises `sqlite3.Error` if the
        database cannot be read.
        """
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        try:
            self._prepare(path)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together, or none if it raises."""
        with run_transaction(self._connection):
            yield

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._connection.execute(statement, values)

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Insert a row."""
        marks = ", ".join("?" * len(row))
        self.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def find(self, table: str, object_id: str, owner: str | None = None) -> sqlite3.Row | None:
        """Return the row of an object of `owner`, or of any owner if `owner` is `None`."""
        # SQLite cannot bind a lone surrogate. Ids are ASCII.
        if not object_id.isascii():
            return None
        condition, values = ("", ()) if owner is None else (" AND owner = ?", (owner,))
        row: sqlite3.Row | None = self.execute(
            f"SELECT * FROM {table} WHERE id = ?{condition}", (object_id, *values)
        ).fetchone()
        return row

    def page(
        self, table: str, owner: str, page: Page, condition: str = "1", values: tuple[Any, ...] = ()
    ) -> tuple[list[sqlite3.Row], bool]:
        """Return a page of the objects of `owner` that meet the condition, and whether more follow.

        Raises `UnknownObject` if `after` names no object of the owner.
        """
        condition, values = f"owner = ? AND {condition}", (owner, *values)
        if page.after is not None:
            condition += f" AND place {'<' if page.newest_first else '>'} ?"
            values = (*values, self._place(table, owner, page.after))
        order = "DESC" if page.newest_first else "ASC"
        rows = self.execute(
            f"SELECT * FROM {table} WHERE {condition} ORDER BY place {order} LIMIT ?",
            (*values, page.limit + 1),
        ).fetchall()
        return rows[: page.limit], len(rows) > page.limit

    def keep_newest(self, table: str, condition: str, count: int, by: str = "place") -> int:
        """Delete the oldest objects of each owner with more than `count` that meet the condition.

        `by` is the column of their age. Returns the number of deleted objects.
        """
        return self.execute(
            f"""DELETE FROM {table} WHERE place IN (SELECT place FROM (
                SELECT place, row_number() OVER (PARTITION BY owner ORDER BY {by} DESC) AS number
                FROM {table} WHERE {condition}) WHERE number > ?)""",
            (count,),
        ).rowcount

    def _place(self, table: str, owner: str, object_id: str) -> int:
        """Return the place of an object in its list, also of a file that was deleted within the last day."""
        row = self.find(table, object_id, owner)
        if row is None and table == "files":
            row = self.find("deleted_files", object_id, owner)
        if row is None:
            raise UnknownObject(f"This list has no entry with the id `{object_id[:100]}`.", field="after")
        place: int = row["place"]
        return place

    def _prepare(self, path: Path) -> None:
        version = self.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InvalidConfig(
                f"The batches in {path.parent} were written by a newer vecmill version. Use that version, or "
                "name another folder with --batch-dir."
            )
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = FULL")
        if version == VERSION:
            return
        changes = SCHEMA if version == 0 else "".join(MIGRATIONS[old] for old in range(version, VERSION))
        self._connection.executescript(f"BEGIN; {changes} PRAGMA user_version = {VERSION}; COMMIT;")
