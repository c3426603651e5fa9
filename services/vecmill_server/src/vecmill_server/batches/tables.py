"""The tables of the store, and how their rows are read."""

import sqlite3
from dataclasses import fields

from vecmill_server.batches.records import BatchRecord, BatchStatus, FileRecord, LineProblem, Purpose
from vecmill_server.documents import decode_object

# Raised when a table changes; a newer one is refused, an older one brought up to date.
VERSION = 1
SCHEMA = """
CREATE TABLE files (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, purpose TEXT NOT NULL,
    filename TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER
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
    DEFAULT 0, error_bytes INTEGER NOT NULL DEFAULT 0 ); CREATE INDEX batches_by_status ON batches (status);
"""

_FILE_COLUMNS = tuple(field.name for field in fields(FileRecord))
_BATCH_COLUMNS = tuple(field.name for field in fields(BatchRecord))


def read_file(row: sqlite3.Row) -> FileRecord:
    """A row of `files`."""
    values = {name: row[name] for name in _FILE_COLUMNS}
    return FileRecord(**{**values, "purpose": Purpose(row["purpose"])})


def read_batch(row: sqlite3.Row) -> BatchRecord:
    """A row of `batches`."""
    values = {name: row[name] for name in _BATCH_COLUMNS}
    errors = decode_object(row["errors"])["of"]
    values |= {
        "status": BatchStatus(row["status"]),
        "ending": BatchStatus(row["ending"]),
        "metadata": decode_object(row["metadata"])["of"],
        "errors": tuple(LineProblem(**error) for error in errors),
    }
    return BatchRecord(**values)
