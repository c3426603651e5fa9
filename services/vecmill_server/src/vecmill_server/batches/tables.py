"""The SQL schema of the store, and the conversion of rows to file and batch objects."""

import sqlite3
from dataclasses import fields
from types import MappingProxyType

from vecmill_server.base.json_io import decode_object
from vecmill_server.batches.objects import (
    OPEN_STATUSES,
    BatchObject,
    BatchStatus,
    FileObject,
    FilePurpose,
    LineError,
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
MIGRATIONS = MappingProxyType(
    {
        1: """
ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE batches ADD COLUMN owner TEXT NOT NULL DEFAULT '';
"""
        + _OWNERS
    }
)

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
