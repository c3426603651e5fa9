"""The files and batches of one server, as its routes and its runner see them."""

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.jobs import Jobs
from vecmill_server.batches.records import BatchRecord, BatchRequest, FileRecord, Page, Purpose
from vecmill_server.batches.uploads import read_age_s, read_purpose, receive_form
from vecmill_server.batches.work import Workshop
from vecmill_server.errors import BodyTooLarge, UnknownObject

logger = logging.getLogger(__name__)


class Batches:
    """Open before requests come, `start` when the models are loaded, `stop` to drain, `close` at the end.

    Until it is open, and after it is closed, every method for routes raises `NotReady`.
    """

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._access = shop.access
        self._jobs = Jobs(shop)

    async def open(self) -> None:
        """Raises `InvalidConfig` if the folder cannot be used."""
        await self._access.open()

    def start(self) -> None:
        """Go on with the batches that are open."""
        self._jobs.start()

    async def stop(self) -> None:
        """Begin nothing more; leave what is open to the next start. Files can still be asked for."""
        await self._jobs.stop()

    async def close(self) -> None:
        """Let go of the folder. Twice is fine."""
        await self._access.close()

    # For routes.

    async def upload(self, content_type: bytes, body: AsyncIterator[bytes]) -> FileRecord:
        """Keep the file of a form. Raises `InvalidRequest` and `BodyTooLarge`, and whatever `body` raises."""
        settings, folder = self._shop.settings, self._access.store.folder
        stored = await self._access.call(lambda store: store.stored_bytes())
        if stored >= settings.max_stored_bytes:
            raise BodyTooLarge(
                f"The server keeps {stored} bytes of files, which is as much as it takes. Delete some "
                "first, or start it with a larger --max-stored-bytes."
            )
        file_id = new_file_id()
        with _explain_full_disk():
            content = await asyncio.to_thread(folder.create, file_id)
            try:
                form = await receive_form(content_type, body, content)
                read_purpose(form)
                kept_s = self._kept_s(read_age_s(form))
                await asyncio.to_thread(folder.seal, content)
            except BaseException:
                with suppress(OSError):  # there may be no room for what it still holds
                    content.close()
                folder.remove(file_id)
                raise
            now = self._shop.now
            expires_at = None if kept_s is None else now + kept_s
            record = FileRecord(file_id, Purpose.BATCH, form.filename or "", form.file_bytes, now, expires_at)
            try:
                await self._access.call(lambda store: store.add_file(record))
            except sqlite3.Error:
                folder.remove(file_id)
                raise
        return record

    async def file(self, file_id: str) -> FileRecord:
        """Raises `UnknownObject`."""
        return await self._access.call(lambda store: store.file(file_id))

    async def content(self, file_id: str) -> tuple[FileRecord, Path]:
        """A file, and where its content is. Raises `UnknownObject`."""
        record = await self.file(file_id)
        path = self._access.store.folder.path(record.id)
        if not await asyncio.to_thread(path.exists):
            raise UnknownObject("The content of this file is gone from the server's disk.", field="file_id")
        return record, path

    async def files(self, page: Page, purpose: str | None) -> tuple[list[FileRecord], bool]:
        """A page of the files, and whether more follow."""
        return await self._access.call(lambda store: store.files(page, purpose))

    async def delete_file(self, file_id: str) -> None:
        """Raises `UnknownObject` and `Conflict`."""
        await self._access.call(lambda store: store.delete_file(file_id))

    async def create(self, request: BatchRequest) -> BatchRecord:
        """A new batch. Raises `UnknownObject` and `QueueFull`."""
        output_ids = (new_file_id(), new_file_id())
        batch = await self._access.call(lambda store: store.add_batch(request, output_ids, self._shop.now))
        self._jobs.look()
        return batch

    async def batch(self, batch_id: str) -> BatchRecord:
        """Raises `UnknownObject`."""
        return await self._access.call(lambda store: store.batch(batch_id))

    async def batches(self, page: Page) -> tuple[list[BatchRecord], bool]:
        """A page of the batches, and whether more follow."""
        return await self._access.call(lambda store: store.batches(page))

    async def cancel(self, batch_id: str) -> BatchRecord:
        """Raises `UnknownObject` and `Conflict`."""
        before, after = await self._access.call(
            lambda store: (store.batch(batch_id), store.cancel(batch_id, self._shop.now))
        )
        if before.is_open and not after.is_open:
            self._shop.metrics.batch_ended(after.status)
        self._jobs.look()
        return after

    def _kept_s(self, asked_s: int | None) -> int | None:
        ages = [age for age in (self._shop.settings.batch_keep_s, asked_s) if age is not None]
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
        logger.error("an upload was refused, because there is no room for it: %s", error)
        raise BodyTooLarge("The server's disk has no room for this file. Delete some files first.") from error
