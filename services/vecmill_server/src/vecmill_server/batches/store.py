"""The store of files and batches: a SQLite database, and a folder with the contents of the files.

The store blocks, and belongs to one thread (`StoreThread`). Every method that changes the store is one
transaction, which is synced to disk when the method returns. The docstring of the package has the rules.
Methods for clients have an `owner`, for which the objects of other owners do not exist.
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig, QueueFull
from vecmill_server.base.errors import Conflict, UnknownObject
from vecmill_server.base.json_io import encode_json
from vecmill_server.batches.database import OPEN, Database, read_batch, read_file
from vecmill_server.batches.folder import Folder, is_disk_full, new_batch_id
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
    StoreLimits,
)
from vecmill_server.batches.stored_bytes import BATCH_BYTES, FILE_BYTES, StoredBytes, count_bytes

# The `Retry-After` at the limit of open batches.
ROOM_RETRY_S = 30.0
# The time for which the place of a deleted file is kept, for clients that read the next page after it, and
# the number of places for each owner. The limit on stored bytes does not count them.
DELETED_KEEP_S = 24 * 3600
KEPT_PLACES = 10_000


class Store:
    """The store, described in the docstring of this module."""

    def __init__(self, root: Path, limits: StoreLimits) -> None:
        """Open the store. Raises `InvalidConfig` if `root` cannot be used, or is of a newer version."""
        self.folder = Folder(root)
        self._limits = limits
        try:
            self._database = Database(self.folder.database)
        except (sqlite3.Error, InvalidConfig) as error:
            self.folder.close()
            if isinstance(error, InvalidConfig):
                raise
            raise InvalidConfig(
                f"The batches in {root} cannot be read: {error}. Name another folder with --batch-dir."
            ) from error
        self.folder.sweep(self._known_contents())
        self.stored = StoredBytes(limits.max_bytes, limits.owner_count, count_bytes(self._database))

    def close(self) -> None:
        """Close the database, and release the folder."""
        self._database.close()
        self.folder.close()

    # Files.

    def add_file(self, record: FileObject) -> None:
        """Add a file whose content is already on disk."""
        with self._database.transaction():
            self._database.insert("files", asdict(record))

    def file(self, owner: str, file_id: str) -> FileObject:
        """Return a file. Raises `UnknownObject`."""
        row = self._database.find("files", file_id, owner)
        if row is None:
            raise UnknownObject(
                f"There is no file `{file_id[:100]}`. It may have been deleted.", field="file_id"
            )
        return read_file(row)

    def files(self, owner: str, page: Page, purpose: str | None = None) -> tuple[list[FileObject], bool]:
        """Return a page of the files of an owner, and whether more follow.

        Raises `UnknownObject` if `after` names no file.
        """
        condition, values = ("purpose = ?", (purpose,)) if purpose is not None else ("1", ())
        rows, has_more = self._database.page("files", owner, page, condition, values)
        return [read_file(row) for row in rows], has_more

    def delete_file(self, owner: str, file_id: str, now: int) -> None:
        """Delete a file. Raises `UnknownObject`, or `Conflict` if an open batch reads the file."""
        record = self.file(owner, file_id)
        reader = self._database.execute(
            f"SELECT id FROM batches WHERE input_file_id = ? AND status IN {OPEN}", (file_id,)
        ).fetchone()
        if reader is not None:
            raise Conflict(f"The batch `{reader['id']}` still reads this file. Cancel it first.")
        self._delete([record], now)

    def delete_expired(self, now: int) -> int:
        """Delete expired files, except the inputs of open batches. Return the number of deleted files."""
        query = f"""SELECT * FROM files WHERE expires_at <= ?
            AND id NOT IN (SELECT input_file_id FROM batches WHERE status IN {OPEN})"""
        records = [read_file(row) for row in self._database.execute(query, (now,))]
        self._delete(records, now)
        with self._database.transaction():
            self._database.execute("DELETE FROM deleted_files WHERE deleted_at <= ?", (now - DELETED_KEEP_S,))
            self._database.keep_newest("deleted_files", "1", KEPT_PLACES, by="deleted_at")
        return len(records)

    def _delete(self, records: Sequence[FileObject], now: int) -> None:
        try:
            self._delete_rows(records, now)
        except sqlite3.Error as error:
            if not is_disk_full(error):
                raise
            for record in records:  # their contents make room for the transaction
                self.folder.remove(record.id)
            self._delete_rows(records, now)
        for record in records:
            self.folder.remove(record.id)
            self.stored.give_back(record.owner, record.bytes + FILE_BYTES)

    def _delete_rows(self, records: Sequence[FileObject], now: int) -> None:
        with self._database.transaction():
            for record in records:
                self._database.execute(
                    "INSERT INTO deleted_files SELECT id, place, owner, ? FROM files WHERE id = ?",
                    (now, record.id),
                )
                self._database.execute("DELETE FROM files WHERE id = ?", (record.id,))

    # Batches.

    def add_batch(self, owner: str, new: NewBatch, output_ids: tuple[str, str], now: int) -> BatchObject:
        """Add a batch of an owner, whose responses and errors will be the files `output_ids`.

        Raises `UnknownObject` if the input file does not exist, `QueueFull` at the limit of open batches, and
        `StorageFull` if there is no room for two more files.
        """
        batch_id = new_batch_id()
        with self.stored.taken(owner, BATCH_BYTES), self._database.transaction():
            source = self._database.find("files", new.input_file_id, owner)
            if source is None or source["purpose"] != FilePurpose.BATCH:
                raise UnknownObject(
                    f"There is no file `{new.input_file_id[:100]}` for a batch. Upload one with the "
                    "purpose `batch`.",
                    field="input_file_id",
                )
            self._check_open(owner)
            row = {
                "id": batch_id,
                "owner": owner,
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
            self._database.insert("batches", row)
        return self.batch(batch_id)

    def _check_open(self, owner: str) -> None:
        owners, limits = Counter(self.batch_owners(OPEN_STATUSES).values()), self._limits
        of_all, of_owner = owners.total(), owners[owner]
        share = max(1, limits.max_open // max(1, limits.owner_count()))
        if of_all < limits.max_open and of_owner < share:
            return
        reached = (
            f"{of_all} batches are open, which is the limit of this server."
            if of_all >= limits.max_open
            else f"{of_owner} of your batches are open, which is the share of a key."
        )
        raise QueueFull(f"{reached} Try again when one has ended.", retry_after_s=ROOM_RETRY_S)

    def batch(self, batch_id: str, owner: str | None = None) -> BatchObject:
        """Return a batch of `owner`, or of any owner if `owner` is `None`. Raises `UnknownObject`."""
        row = self._database.find("batches", batch_id, owner)
        if row is None:
            raise UnknownObject(f"There is no batch `{batch_id[:100]}`.", field="batch_id")
        return read_batch(row)

    def batches(self, owner: str, page: Page) -> tuple[list[BatchObject], bool]:
        """Return a page of the batches of an owner, and whether more follow.

        Raises `UnknownObject` if `after` names no batch.
        """
        rows, has_more = self._database.page("batches", owner, page)
        return [read_batch(row) for row in rows], has_more

    def batch_owners(
        self, statuses: Collection[BatchStatus], expired_at: int | None = None
    ) -> dict[str, str]:
        """Return the owners of the batches with these statuses, by the ids of the batches.

        Batches in progress whose completion window is over at `expired_at` are included. The oldest batch of
        each owner comes first, then the second oldest of each, and so on.
        """
        marks = ", ".join("?" * len(statuses))
        query = f"""SELECT id, owner FROM batches
            WHERE status IN ({marks}) OR (status = ? AND expires_at <= ?)
            ORDER BY row_number() OVER (PARTITION BY owner ORDER BY place), place"""
        values = (*statuses, BatchStatus.IN_PROGRESS, -1 if expired_at is None else expired_at)
        return {row["id"]: row["owner"] for row in self._database.execute(query, values)}

    def ending_batches(self, now: int) -> dict[str, str]:
        """Return the owners of the started batches with no more lines to run, by the ids of the batches."""
        return self.batch_owners((BatchStatus.FINALIZING, BatchStatus.CANCELLING), expired_at=now)

    def forget_batches(self, kept: int) -> None:
        """Delete the oldest ended batches of each owner with more than `kept`. Their files are kept."""
        with self._database.transaction():
            self._database.keep_newest("batches", f"status NOT IN {OPEN}", kept)

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
        before = self.batch(batch_id)
        changed = self._change(
            batch_id,
            "status = ?, failed_at = ?, errors = ?, output_bytes = 0, error_bytes = 0",
            (BatchStatus.FAILED, now, written),
            OPEN_STATUSES,
        )
        if before.is_open and not changed.is_open:
            for content in (changed.output_file_id, changed.error_file_id):
                self.folder.remove(content)
            self.stored.give_back(changed.owner, before.output_bytes + before.error_bytes + BATCH_BYTES)
        return changed

    def stop(self, batch_id: str, error: LineError) -> BatchObject:
        """Run no more lines of a started batch, because of `error`. Its results are kept.

        The batch will have the final status failed, unless it was cancelled or has expired.
        """
        return self._change(
            batch_id,
            "errors = ?, ending = CASE ending WHEN ? THEN ? ELSE ending END",
            (encode_json({"of": [asdict(error)]}), BatchStatus.COMPLETED, BatchStatus.FAILED),
            STARTED_STATUSES,
        )

    def cancel(self, owner: str, batch_id: str, now: int) -> BatchObject:
        """Cancel a batch: at once if it has not begun, otherwise by setting it to cancelling.

        Raises `UnknownObject`, and `Conflict` if the batch cannot be cancelled.
        """
        before, ending = self.batch(batch_id, owner), BatchStatus.CANCELLED
        changed = self._change(
            batch_id,
            "status = ?, ending = ?, cancelling_at = ?, cancelled_at = ?",
            (BatchStatus.CANCELLED, ending, now, now),
            (BatchStatus.VALIDATING,),
        )
        if before.status is BatchStatus.VALIDATING:
            self.stored.give_back(owner, BATCH_BYTES)
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
        """Store the results of the lines that follow those of `batch`. Return the updated batch.

        Raises `StorageFull` if they pass a limit on stored bytes, and `OSError` or `sqlite3.Error` if the
        disk is full. Then nothing is stored.
        """
        with self.stored.taken(batch.owner, len(progress.output) + len(progress.errors)):
            if progress.output:
                self.folder.write_at(batch.output_file_id, batch.output_bytes, progress.output)
            if progress.errors:
                self.folder.write_at(batch.error_file_id, batch.error_bytes, progress.errors)
            self._count_lines(batch, progress)
        return self.batch(batch.id)

    def _count_lines(self, batch: BatchObject, progress: BatchProgress) -> None:
        with self._database.transaction():
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
        with self._database.transaction():
            for file_id, size, name in outputs:
                if size:
                    filename = f"{batch.id}_{name}.jsonl"
                    record = FileObject(
                        file_id, FilePurpose.BATCH_OUTPUT, filename, size, now, expires_at, batch.owner
                    )
                    self._database.insert("files", asdict(record))
            self._database.execute(
                f"UPDATE batches SET status = ending, {batch.ending}_at = ? WHERE id = ?", (now, batch_id)
            )
        self.stored.give_back(batch.owner, FILE_BYTES * sum(not size for _, size, _ in outputs))
        return self.batch(batch_id)

    # The database.

    def _known_contents(self) -> set[str]:
        known = {row["id"] for row in self._database.execute("SELECT id FROM files")}
        for row in self._database.execute(
            f"SELECT output_file_id, error_file_id FROM batches WHERE status IN {OPEN}"
        ):
            known.update(row)
        return known

    def _change(
        self, batch_id: str, setting: str, values: tuple[Any, ...], if_in: Collection[BatchStatus]
    ) -> BatchObject:
        """Change a batch if its status is in `if_in`. Return the batch after the change."""
        marks = ", ".join("?" * len(if_in))
        with self._database.transaction():
            self._database.execute(
                f"UPDATE batches SET {setting} WHERE id = ? AND status IN ({marks})",
                (*values, batch_id, *if_in),
            )
            return self.batch(batch_id)
