"""The batch service: the operations on files and batches, for the routes and the runner."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vecmill_server.base.errors import StorageFull, UnknownObject
from vecmill_server.batches.execution import BatchContext
from vecmill_server.batches.folder import Folder, is_disk_full, new_file_id
from vecmill_server.batches.objects import BatchObject, FileObject, FilePurpose, NewBatch, Page
from vecmill_server.batches.scheduler import BatchScheduler
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import FILE_BYTES, Reservation
from vecmill_server.batches.uploads import FORM_BYTES, Reserve, check_purpose, read_age_s, receive_form

logger = logging.getLogger(__name__)


class BatchService:
    """The files and batches of one server. Every method for routes has the owner of the key of its request.

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

    @property
    def is_open(self) -> bool:
        """True while the methods for routes can be used."""
        return self._store_thread.is_open

    # Methods for routes.

    async def upload(
        self, owner: str, content_type: bytes, size: int, body: AsyncIterator[bytes]
    ) -> FileObject:
        """Store the file of a form. `size` is the number of bytes that the client announced, or 0.

        Raises `InvalidRequest`, `StorageFull`, and the errors of `body`.
        """
        thread = self._store_thread
        # Refused before the body is read if it cannot fit.
        least = FILE_BYTES + max(0, size - FORM_BYTES)
        await thread.call(lambda store: store.stored.check(owner, least))
        reservation = await thread.call(lambda store: Reservation(store.stored, owner))

        async def reserve(size: int) -> None:
            await thread.call(lambda _: reservation.grow(size))

        try:
            await reserve(FILE_BYTES)
            with _explain_full_disk():
                return await self._receive(content_type, body, reservation, reserve)
        finally:
            # The calls of the store run in order, also those of a request that was cancelled.
            thread.post(lambda _: reservation.release())

    async def _receive(
        self, content_type: bytes, body: AsyncIterator[bytes], reservation: Reservation, reserve: Reserve
    ) -> FileObject:
        folder, file_id = self._store_thread.store.folder, new_file_id()
        content = await asyncio.to_thread(folder.create, file_id)
        try:
            form = await receive_form(content_type, body, content, reserve)
            check_purpose(form)
            kept_s = self._kept_s(read_age_s(form))
            await asyncio.to_thread(folder.seal, content)
        except BaseException:
            # In a thread, because large files take long to remove. It goes on if the request is cancelled.
            await asyncio.shield(asyncio.to_thread(_discard, folder, file_id, content))
            raise
        now = self._context.now
        expires_at = None if kept_s is None else now + kept_s
        name, size = form.filename or "", form.file_bytes
        record = FileObject(file_id, FilePurpose.BATCH, name, size, now, expires_at, reservation.owner)

        def add(store: Store) -> None:
            store.add_file(record)
            reservation.keep()

        try:
            await self._store_thread.call(add)
        except sqlite3.Error:
            await asyncio.to_thread(folder.remove, file_id)
            raise
        return record

    async def file(self, owner: str, file_id: str) -> FileObject:
        """Return a file. Raises `UnknownObject`."""
        return await self._store_thread.call(lambda store: store.file(owner, file_id))

    async def content(self, owner: str, file_id: str) -> tuple[FileObject, Path]:
        """Return a file and the path of its content. Raises `UnknownObject`."""
        record = await self.file(owner, file_id)
        path = self._store_thread.store.folder.path(record.id)
        if not await asyncio.to_thread(path.exists):
            raise UnknownObject(
                "The content of this file was removed from the server's disk.", field="file_id"
            )
        return record, path

    async def files(self, owner: str, page: Page, purpose: str | None) -> tuple[list[FileObject], bool]:
        """Return a page of the files of an owner, and whether more follow."""
        return await self._store_thread.call(lambda store: store.files(owner, page, purpose))

    async def delete_file(self, owner: str, file_id: str) -> None:
        """Delete a file. Raises `UnknownObject` and `Conflict`."""
        now = self._context.now
        await self._store_thread.call(lambda store: store.delete_file(owner, file_id, now))

    async def create(self, owner: str, new: NewBatch) -> BatchObject:
        """Create a batch. Raises `UnknownObject`, `QueueFull` and `StorageFull`."""
        output_ids, now = (new_file_id(), new_file_id()), self._context.now
        with _explain_full_disk():
            batch = await self._store_thread.call(lambda store: store.add_batch(owner, new, output_ids, now))
        self._scheduler.wake()
        return batch

    async def batch(self, owner: str, batch_id: str) -> BatchObject:
        """Return a batch. Raises `UnknownObject`."""
        return await self._store_thread.call(lambda store: store.batch(batch_id, owner))

    async def batches(self, owner: str, page: Page) -> tuple[list[BatchObject], bool]:
        """Return a page of the batches of an owner, and whether more follow."""
        return await self._store_thread.call(lambda store: store.batches(owner, page))

    async def cancel(self, owner: str, batch_id: str) -> BatchObject:
        """Cancel a batch. Raises `UnknownObject` and `Conflict`."""
        now = self._context.now
        before, after = await self._store_thread.call(
            lambda store: (store.batch(batch_id, owner), store.cancel(owner, batch_id, now))
        )
        if before.is_open and not after.is_open:
            self._context.metrics.batch_ended(after.status)
        self._scheduler.wake()
        return after

    def _kept_s(self, asked_s: int | None) -> int | None:
        ages = [age for age in (self._context.settings.batch_keep_s, asked_s) if age is not None]
        return min(ages, default=None)


def _discard(folder: Folder, file_id: str, content: BinaryIO) -> None:
    with suppress(OSError):  # flushing the buffered bytes can fail on a full disk
        content.close()
    folder.remove(file_id)


@contextmanager
def _explain_full_disk() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if not is_disk_full(error):
            raise
        logger.error("a file or batch is refused, because the disk is full: %s", error)
        raise StorageFull("The server's disk has no room. Delete some files first.") from error
