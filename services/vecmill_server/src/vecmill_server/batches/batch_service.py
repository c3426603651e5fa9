"""The batch service: the operations on files and batches, for the routes and the runner."""

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vecmill_server.batches.execution import BatchContext
from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import BatchObject, FileObject, FilePurpose, NewBatch, Page
from vecmill_server.batches.scheduler import BatchScheduler
from vecmill_server.batches.uploads import check_purpose, read_age_s, receive_form
from vecmill_server.errors import BodyTooLarge, UnknownObject

logger = logging.getLogger(__name__)


class BatchService:
    """The files and batches of one server.

    The runner opens the service before requests arrive, starts it when the models are loaded, stops it to
    drain, and closes it at exit. While it is not open, every method for routes raises `NotReady`.
    """

    def __init__(self, context: BatchContext) -> None:
        self._context = context
        self._store_thread = context.store_thread
        self._scheduler = BatchScheduler(context)

    async def open(self) -> None:
        """Open the folder. Raises `InvalidConfig` if the folder cannot be used."""
        await self._store_thread.open()

    def start(self) -> None:
        """Resume the open batches."""
        self._scheduler.start()

    async def stop(self) -> None:
        """Stop the open batches, which the next start resumes. Routes still work."""
        await self._scheduler.stop()

    async def close(self) -> None:
        """Release the folder. Can be called twice."""
        await self._store_thread.close()

    # Methods for routes.

    async def upload(self, content_type: bytes, body: AsyncIterator[bytes]) -> FileObject:
        """Store the file of a form. Raises `InvalidRequest`, `BodyTooLarge`, and the errors of `body`."""
        settings, folder = self._context.settings, self._store_thread.store.folder
        stored = await self._store_thread.call(lambda store: store.stored_bytes())
        if stored >= settings.max_stored_bytes:
            raise BodyTooLarge(
                f"The server stores {stored} bytes of files, which reaches its limit. Delete some files "
                "first, or start the server with a larger --max-stored-bytes."
            )
        file_id = new_file_id()
        with _explain_full_disk():
            content = await asyncio.to_thread(folder.create, file_id)
            try:
                form = await receive_form(content_type, body, content)
                check_purpose(form)
                kept_s = self._kept_s(read_age_s(form))
                await asyncio.to_thread(folder.seal, content)
            except BaseException:
                with suppress(OSError):  # flushing the buffered bytes can fail on a full disk
                    content.close()
                folder.remove(file_id)
                raise
            now = self._context.now
            expires_at = None if kept_s is None else now + kept_s
            record = FileObject(
                file_id, FilePurpose.BATCH, form.filename or "", form.file_bytes, now, expires_at
            )
            try:
                await self._store_thread.call(lambda store: store.add_file(record))
            except sqlite3.Error:
                folder.remove(file_id)
                raise
        return record

    async def file(self, file_id: str) -> FileObject:
        """Return a file. Raises `UnknownObject`."""
        return await self._store_thread.call(lambda store: store.file(file_id))

    async def content(self, file_id: str) -> tuple[FileObject, Path]:
        """Return a file and the path of its content. Raises `UnknownObject`."""
        record = await self.file(file_id)
        path = self._store_thread.store.folder.path(record.id)
        if not await asyncio.to_thread(path.exists):
            raise UnknownObject(
                "The content of this file was removed from the server's disk.", field="file_id"
            )
        return record, path

    async def files(self, page: Page, purpose: str | None) -> tuple[list[FileObject], bool]:
        """Return a page of the files, and whether more follow."""
        return await self._store_thread.call(lambda store: store.files(page, purpose))

    async def delete_file(self, file_id: str) -> None:
        """Delete a file. Raises `UnknownObject` and `Conflict`."""
        await self._store_thread.call(lambda store: store.delete_file(file_id))

    async def create(self, new: NewBatch) -> BatchObject:
        """Create a batch. Raises `UnknownObject` and `QueueFull`."""
        output_ids = (new_file_id(), new_file_id())
        batch = await self._store_thread.call(
            lambda store: store.add_batch(new, output_ids, self._context.now)
        )
        self._scheduler.wake()
        return batch

    async def batch(self, batch_id: str) -> BatchObject:
        """Return a batch. Raises `UnknownObject`."""
        return await self._store_thread.call(lambda store: store.batch(batch_id))

    async def batches(self, page: Page) -> tuple[list[BatchObject], bool]:
        """Return a page of the batches, and whether more follow."""
        return await self._store_thread.call(lambda store: store.batches(page))

    async def cancel(self, batch_id: str) -> BatchObject:
        """Cancel a batch. Raises `UnknownObject` and `Conflict`."""
        before, after = await self._store_thread.call(
            lambda store: (store.batch(batch_id), store.cancel(batch_id, self._context.now))
        )
        if before.is_open and not after.is_open:
            self._context.metrics.batch_ended(after.status)
        self._scheduler.wake()
        return after

    def _kept_s(self, asked_s: int | None) -> int | None:
        ages = [age for age in (self._context.settings.batch_keep_s, asked_s) if age is not None]
        return min(ages, default=None)


@contextmanager
def _explain_full_disk() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        is_full = (
            error.errno in (errno.ENOSPC, errno.EDQUOT)
            if isinstance(error, OSError)
            else error.sqlite_errorcode == sqlite3.SQLITE_FULL
        )
        if not is_full:
            raise
        logger.error("upload refused, because the disk is full: %s", error)
        raise BodyTooLarge("The server's disk has no room for this file. Delete some files first.") from error
