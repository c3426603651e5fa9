"""The store of files and batches: a SQLite database, and a folder with the contents of the files.

The store blocks, and belongs to one thread (`store_thread`). Every method that changes the store is one
transaction, which is synced to disk when the method returns. The docstring of the package has the rules.
"""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig, QueueFull
from vecmill_server.batches.folder import Folder, new_batch_id
from vecmill_server.batches.objects import (
    OPEN_STATUSES,
    STARTED_STATUSES,
    BatchObject,
    BatchProgress,
    BatchStatus,
    FileObject,
    FilePurpose,
    LineError,
    NewBatch,
    Page,
)
from vecmill_server.batches.tables import SCHEMA, VERSION, read_batch, read_file
from vecmill_server.errors import Conflict, UnknownObject
from vecmill_server.json_io import encode_json

_OPEN = f"({', '.join(repr(str(status)) for status in OPEN_STATUSES)})"
# The `Retry-After` at the limit of open batches.
ROOM_RETRY_S = 30.0


class Store:
    """The store, described in the docstring of this module. `max_open` is the limit of open batches."""

    def __init__(self, root: Path, *, max_open: int) -> None:
        """Open the store. Raises `InvalidConfig` if `root` cannot be used, or is of a newer version."""
        self.folder = Folder(root)
        self._max_open = max_open
        try:
            self._database = self._open_database()
        except (sqlite3.Error, InvalidConfig) as error:
            self.folder.close()
            if isinstance(error, InvalidConfig):
                raise
            raise InvalidConfig(
                f"The batches in {root} cannot be read: {error}. Name another folder with --batch-dir."
            ) from error
        self.folder.sweep(self._known_contents())

    def close(self) -> None:
        """Close the database, and release the folder."""
        self._database.close()
        self.folder.close()

    # Files.

    def add_file(self, record: FileObject) -> None:
        """Add a file whose content is already on disk."""
        with self._transaction():
            self._insert("files", asdict(record))

    def file(self, file_id: str) -> FileObject:
        """Return a file. Raises `UnknownObject`."""
        row = self._find("files", file_id)
        if row is None:
            raise UnknownObject(
                f"There is no file `{file_id[:100]}`. It may have been deleted.", field="file_id"
            )
        return read_file(row)

    def files(self, page: Page, purpose: str | None = None) -> tuple[list[FileObject], bool]:
        """Return a page of the files, and whether more follow.

        Raises `UnknownObject` if `after` names no file.
        """
        condition, values = ("purpose = ?", (purpose,)) if purpose is not None else ("1", ())
        rows, has_more = self._page("files", page, condition, values)
        return [read_file(row) for row in rows], has_more

    def stored_bytes(self) -> int:
        """Return the bytes of all files, and of the results that open batches have written."""
        query = f"""
            SELECT (SELECT coalesce(sum(bytes), 0) FROM files)
                + (SELECT coalesce(sum(output_bytes + error_bytes), 0) FROM batches WHERE status IN {_OPEN})
        """
        found: int = self._database.execute(query).fetchone()[0]
        return found

    def delete_file(self, file_id: str) -> None:
        """Delete a file. Raises `UnknownObject`, or `Conflict` if an open batch reads the file."""
        with self._transaction():
            self.file(file_id)
            reader = self._database.execute(
                f"SELECT id FROM batches WHERE input_file_id = ? AND status IN {_OPEN}", (file_id,)
            ).fetchone()
            if reader is not None:
                raise Conflict(f"The batch `{reader['id']}` still reads this file. Cancel it first.")
            self._database.execute("DELETE FROM files WHERE id = ?", (file_id,))
        self.folder.remove(file_id)

    def delete_expired(self, now: int) -> int:
        """Delete expired files, except the inputs of open batches. Return the number of deleted files."""
        query = f"""SELECT id FROM files WHERE expires_at <= ?
            AND id NOT IN (SELECT input_file_id FROM batches WHERE status IN {_OPEN})"""
        with self._transaction():
            rows = self._database.execute(query, (now,)).fetchall()
            self._database.executemany("DELETE FROM files WHERE id = ?", [tuple(row) for row in rows])
        for row in rows:
            self.folder.remove(row["id"])
        return len(rows)

    # Batches.

    def add_batch(self, new: NewBatch, output_ids: tuple[str, str], now: int) -> BatchObject:
        """Add a batch, whose responses and errors will be the files `output_ids`.

        Raises `UnknownObject` if the input file does not exist, and `QueueFull` at the limit of open batches.
        """
        batch_id = new_batch_id()
        with self._transaction():
            source = self._find("files", new.input_file_id)
            if source is None or source["purpose"] != FilePurpose.BATCH:
                raise UnknownObject(
                    f"There is no file `{new.input_file_id[:100]}` for a batch. Upload one with the "
                    "purpose `batch`.",
                    field="input_file_id",
                )
            if len(self.batch_ids(OPEN_STATUSES)) >= self._max_open:
                raise QueueFull(
                    f"{self._max_open} batches are open, which is the limit of this server. Try again "
                    "when one has ended.",
                    retry_after_s=ROOM_RETRY_S,
                )
            row = {
                "id": batch_id,
                "endpoint": new.endpoint,
                "input_file_id": new.input_file_id,
                "completion_window": new.completion_window,
                "status": BatchStatus.VALIDATING,
                "ending": BatchStatus.COMPLETED,
                "metadata": encode_json({"of": new.metadata}),
                "errors": encode_json({"of": []}),
                "output_file_id": output_ids[0],
                "error_file_id": output_ids[1],
                "output_expires_after_s": new.output_expires_after_s,
                "created_at": now,
                "expires_at": now + new.window_s,
            }
            self._insert("batches", row)
        return self.batch(batch_id)

    def batch(self, batch_id: str) -> BatchObject:
        """Return a batch. Raises `UnknownObject`."""
        row = self._find("batches", batch_id)
        if row is None:
            raise UnknownObject(f"There is no batch `{batch_id[:100]}`.", field="batch_id")
        return read_batch(row)

    def batches(self, page: Page) -> tuple[list[BatchObject], bool]:
        """Return a page of the batches, and whether more follow.

        Raises `UnknownObject` if `after` names no batch.
        """
        rows, has_more = self._page("batches", page)
        return [read_batch(row) for row in rows], has_more

    def batch_ids(self, statuses: Collection[BatchStatus]) -> list[str]:
        """Return the ids of the batches with these statuses, the oldest first."""
        marks = ", ".join("?" * len(statuses))
        query = f"SELECT id FROM batches WHERE status IN ({marks}) ORDER BY place"
        return [row["id"] for row in self._database.execute(query, tuple(statuses))]

    def ending_ids(self, now: int) -> list[str]:
        """Return the ids of the started batches with no more lines to run, the oldest first."""
        query = """SELECT id FROM batches
            WHERE status IN (?, ?) OR (status = ? AND expires_at <= ?) ORDER BY place"""
        values = (BatchStatus.FINALIZING, BatchStatus.CANCELLING, BatchStatus.IN_PROGRESS, now)
        return [row["id"] for row in self._database.execute(query, values)]

    def begin(self, batch_id: str, total: int, now: int) -> BatchObject:
        """Set a batch in progress, whose input is valid and has `total` requests."""
        return self._change(
            batch_id,
            "status = ?, in_progress_at = ?, total = ?",
            (BatchStatus.IN_PROGRESS, now, total),
            (BatchStatus.VALIDATING,),
        )

    def fail(self, batch_id: str, errors: Sequence[LineError], now: int) -> BatchObject:
        """End a batch as failed, because of errors in its input. Its results, if any, are removed."""
        written = encode_json({"of": [asdict(error) for error in errors]})
        changed = self._change(
            batch_id,
            "status = ?, failed_at = ?, errors = ?, output_bytes = 0, error_bytes = 0",
            (BatchStatus.FAILED, now, written),
            OPEN_STATUSES,
        )
        if changed.status is BatchStatus.FAILED:
            for content in (changed.output_file_id, changed.error_file_id):
                self.folder.remove(content)
        return changed

    def cancel(self, batch_id: str, now: int) -> BatchObject:
        """Cancel a batch: at once if it has not begun, otherwise by setting it to cancelling.

        Raises `UnknownObject`, and `Conflict` if the batch cannot be cancelled.
        """
        ending = BatchStatus.CANCELLED
        changed = self._change(
            batch_id,
            "status = ?, ending = ?, cancelling_at = ?, cancelled_at = ?",
            (BatchStatus.CANCELLED, ending, now, now),
            (BatchStatus.VALIDATING,),
        )
        changed = self._change(
            batch_id,
            "status = ?, ending = ?, cancelling_at = ?",
            (BatchStatus.CANCELLING, ending, now),
            (BatchStatus.IN_PROGRESS,),
        )
        if changed.ending is not ending:
            raise Conflict(f"The batch is {changed.status} and can no longer be cancelled.")
        return changed

    def expire(self, batch_id: str) -> BatchObject:
        """Set the final status of a batch in progress to expired. Other batches are unchanged."""
        return self._change(batch_id, "ending = ?", (BatchStatus.EXPIRED,), (BatchStatus.IN_PROGRESS,))

    def advance(self, batch: BatchObject, progress: BatchProgress) -> BatchObject:
        """Store the results of the lines that follow those of `batch`. Return the updated batch."""
        if progress.output:
            self.folder.write_at(batch.output_file_id, batch.output_bytes, progress.output)
        if progress.errors:
            self.folder.write_at(batch.error_file_id, batch.error_bytes, progress.errors)
        with self._transaction():
            done = self._database.execute(
                """UPDATE batches SET lines_done = lines_done + ?, input_offset = input_offset + ?,
                    output_bytes = output_bytes + ?, error_bytes = error_bytes + ?,
                    completed = completed + ?, failed = failed + ?, tokens = tokens + ?
                    WHERE id = ? AND input_offset = ?""",
                (
                    progress.lines,
                    progress.input_bytes,
                    len(progress.output),
                    len(progress.errors),
                    progress.completed,
                    progress.failed,
                    progress.tokens,
                    batch.id,
                    batch.input_offset,
                ),
            )
            if done.rowcount != 1:
                raise RuntimeError(f"{batch.id} is not where it was when these lines began")
        return self.batch(batch.id)

    def check_contents(self, batch_id: str) -> None:
        """Raise `FileNotFoundError` if a file of the batch is shorter than its size in the database."""
        batch = self.batch(batch_id)
        for file_id, size in (
            (batch.input_file_id, batch.input_offset),
            (batch.output_file_id, batch.output_bytes),
            (batch.error_file_id, batch.error_bytes),
        ):
            if self.folder.size(file_id) < size:
                raise FileNotFoundError(f"{file_id} has less than {size} bytes")

    def finish(self, batch_id: str, now: int, keep_s: int | None) -> BatchObject:
        """End a batch: make its output files available, for at most `keep_s`, and set its final status."""
        batch = self._change(
            batch_id,
            "status = ?, finalizing_at = coalesce(finalizing_at, ?)",
            (BatchStatus.FINALIZING, now),
            STARTED_STATUSES,
        )
        outputs = (
            (batch.output_file_id, batch.output_bytes, "output"),
            (batch.error_file_id, batch.error_bytes, "error"),
        )
        for file_id, size, _ in outputs:
            self.folder.cut(file_id, size)
        ages = [age for age in (keep_s, batch.output_expires_after_s) if age is not None]
        expires_at = now + min(ages) if ages else None
        with self._transaction():
            for file_id, size, name in outputs:
                if size:
                    filename = f"{batch.id}_{name}.jsonl"
                    record = FileObject(file_id, FilePurpose.BATCH_OUTPUT, filename, size, now, expires_at)
                    self._insert("files", asdict(record))
            self._database.execute(
                f"UPDATE batches SET status = ending, {batch.ending}_at = ? WHERE id = ?", (now, batch_id)
            )
        return self.batch(batch_id)

    # The database.

    def _open_database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.folder.database, isolation_level=None)
        database.row_factory = sqlite3.Row
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InvalidConfig(
                f"The batches in {self.folder.database.parent} were written by a newer vecmill version. "
                "Use that version, or name another folder with --batch-dir."
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if version == 0:
            database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")

    def _known_contents(self) -> set[str]:
        known = {row["id"] for row in self._database.execute("SELECT id FROM files")}
        for row in self._database.execute(
            f"SELECT output_file_id, error_file_id FROM batches WHERE status IN {_OPEN}"
        ):
            known.update(row)
        return known

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(row))
        self._database.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())
        )

    def _find(self, table: str, object_id: str) -> sqlite3.Row | None:
        # SQLite cannot bind a lone surrogate. Ids are ASCII.
        if not object_id.isascii():
            return None
        row: sqlite3.Row | None = self._database.execute(
            f"SELECT * FROM {table} WHERE id = ?", (object_id,)
        ).fetchone()
        return row

    def _page(
        self, table: str, page: Page, condition: str = "1", values: tuple[Any, ...] = ()
    ) -> tuple[list[sqlite3.Row], bool]:
        if page.after is not None:
            last = self._find(table, page.after)
            if last is None:
                raise UnknownObject(
                    f"This list has no entry with the id `{page.after[:100]}`.", field="after"
                )
            condition += f" AND place {'<' if page.newest_first else '>'} ?"
            values = (*values, last["place"])
        order = "DESC" if page.newest_first else "ASC"
        rows = self._database.execute(
            f"SELECT * FROM {table} WHERE {condition} ORDER BY place {order} LIMIT ?",
            (*values, page.limit + 1),
        ).fetchall()
        return rows[: page.limit], len(rows) > page.limit

    def _change(
        self, batch_id: str, setting: str, values: tuple[Any, ...], if_in: Collection[BatchStatus]
    ) -> BatchObject:
        """Change a batch if its status is in `if_in`. Return the batch after the change."""
        marks = ", ".join("?" * len(if_in))
        with self._transaction():
            self._database.execute(
                f"UPDATE batches SET {setting} WHERE id = ? AND status IN ({marks})",
                (*values, batch_id, *if_in),
            )
            return self.batch(batch_id)
