"""The embedding cache on disk: a thread that reads and one that writes, so that the event loop never waits.

How it works. A read is handed to the reading thread, and its request waits at most `READ_S`; what is not
read by then is computed. If `MOST_READS` wait, the disk hangs, and nothing is asked of it. Embeddings to
write wait in a queue of at most `MOST_WAITING_BYTES`. What does not fit is not written. The writing thread
writes them in batches: it waits `LINGER_S` for more after the first one.

Faults. A record with a wrong checksum is not used, and its text is computed, which writes it again. A damaged
file is removed and replaced by an empty one. If the disk is full or cannot be written, the embeddings are not
written, and the next batch tries again. All faults are counted, and those that repeat themselves are logged
once. None of them fails a request.

Rules: the threads start at the first use, since a server may fork before. Each thread has its own connection.
`_condition` guards what waits to be written. Futures are touched on the event loop only.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from vecmill.errors import one_line
from vecmill.values.embedding_cache import CachedEmbedding
from vecmill_server.service.embedding_cache.embedding_database import DamagedDatabase, EmbeddingDatabase
from vecmill_server.service.embedding_cache.embedding_folder import EmbeddingFolder
from vecmill_server.service.embedding_cache.embedding_records import decode_record, encode_record

logger = logging.getLogger(__name__)

READ_S = 0.25
MOST_READS = 32
MOST_WAITING_BYTES = 32 * 1024 * 1024
# Few enough that a batch keeps other processes from reading for milliseconds only.
BATCH_RECORDS = 64
LINGER_S = 0.05
# The time to write what waits at a stop.
CLOSE_S = 5.0


class Drop(StrEnum):
    """The reason why embeddings were not kept on disk, or were removed from it."""

    RECORD_DAMAGED = "record_damaged"  # one record, by its checksum
    FILE_DAMAGED = "file_damaged"  # all records of a file
    DISK_FULL = "disk_full"
    DISK_FAILED = "disk_failed"  # cannot be written, or took too long
    BUSY = "busy"  # more to write than the disk takes


# Once the disk is well, these are logged again.
_PASSING = (Drop.DISK_FULL, Drop.DISK_FAILED, Drop.BUSY)

# Counts a fault. Called from any thread.
OnDrop = Callable[[Drop], None]

_Found = Sequence[CachedEmbedding | None]
_Read = tuple[Sequence[bytes], "asyncio.Future[_Found]", asyncio.AbstractEventLoop]


class DiskTier:
    """The embeddings in one folder. Use from one event loop."""

    def __init__(self, folder: Path, most_bytes: int, on_drop: OnDrop) -> None:
        self.size = 0  # of the file, as far as this process knows
        self._folder = EmbeddingFolder(folder)
        self._most_bytes = most_bytes
        self._on_drop = on_drop
        self._complaints: dict[Drop, str] = {}
        self._reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self.open_reads = 0  # of which some may not be waited for any more
        self._condition = threading.Condition()
        self._waiting: deque[tuple[bytes, CachedEmbedding]] = deque()
        self._waiting_bytes = 0
        self._is_writing = False
        self._is_closing = False
        self._reader: threading.Thread | None = None
        self._writer: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to write."""
        with self._condition:
            return not self._waiting and not self._is_writing

    async def read(self, keys: Sequence[bytes]) -> _Found:
        """Return the embedding of each key, `None` for those that are not there or take too long."""
        nothing: _Found = [None] * len(keys)
        if self._is_closing:
            return nothing
        if self.open_reads >= MOST_READS:
            self._complain(Drop.DISK_FAILED, "reads take too long")
            return nothing
        if self._reader is None:
            self._reader = self._start(self._read_all, "read")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Found] = loop.create_future()
        self.open_reads += 1
        self._reads.put((keys, future, loop))
        try:
            async with asyncio.timeout(READ_S):
                return await future
        except TimeoutError:
            return nothing

    def write(self, embeddings: Mapping[bytes, CachedEmbedding]) -> None:
        """Write embeddings later. Those for which there is no room are not written."""
        if self._writer is None:
            self._writer = self._start(self._write_all, "write")
        dropped = 0
        with self._condition:
            # A writer that waits for a whole batch is not woken for each embedding.
            is_idle = not self._waiting
            for key, embedding in embeddings.items():
                if self._waiting_bytes > MOST_WAITING_BYTES or self._is_closing:
                    dropped += 1
                    continue
                self._waiting.append((key, embedding))
                self._waiting_bytes += embedding.values.nbytes
            if is_idle or len(self._waiting) >= BATCH_RECORDS:
                self._condition.notify()
        for _ in range(dropped):
            self._complain(Drop.BUSY, "embeddings come faster than they are written")

    async def close(self) -> None:
        """Write what waits, for at most `CLOSE_S`, and end the threads."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._reads.put(None)
        for thread in (self._reader, self._writer):
            if thread is not None:
                await asyncio.to_thread(thread.join, CLOSE_S)

    def _start(self, work: Callable[[], None], name: str) -> threading.Thread:
        # Daemons, so that a disk that hangs does not keep the process from ending.
        thread = threading.Thread(target=work, name=f"vecmill-embeddings-{name}", daemon=True)
        thread.start()
        return thread

    def _settle(self, future: "asyncio.Future[_Found]", found: _Found) -> None:
        self.open_reads -= 1
        if not future.done():
            future.set_result(found)

    # On the reading thread.

    def _read_all(self) -> None:
        database: EmbeddingDatabase | None = None
        while (read := self._reads.get()) is not None:
            keys, future, loop = read
            found: _Found = [None] * len(keys)
            if not future.done():  # else the request has gone on without
                try:
                    database = self._reopen(database)
                    found = self._read_from(database, keys) if database else found
                # Whatever it is, the request goes on without, and so does the thread.
                except BaseException as error:
                    self._give_up(database, error)
                    database = None
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(self._settle, future, found)
            del read, keys, future, found
        if database is not None:
            database.close()

    def _reopen(self, database: EmbeddingDatabase | None) -> EmbeddingDatabase | None:
        """Return the open file, or the newest one if it was removed; `None` if there is none."""
        if database is not None:
            if database.path.exists():
                return database
            database.close()
        newest = self._folder.newest()
        return None if newest is None else self._open_file(newest)

    def _read_from(self, database: EmbeddingDatabase, keys: Sequence[bytes]) -> _Found:
        found: list[CachedEmbedding | None] = []
        for key, record in zip(keys, database.get(keys), strict=True):
            found.append(None if record is None else decode_record(key, record))
            if record is not None and found[-1] is None:
                self._complain(Drop.RECORD_DAMAGED, "a record has a wrong checksum")
        return found

    # On the writing thread.

    def _write_all(self) -> None:
        database: EmbeddingDatabase | None = None
        while batch := self._next_batch():
            try:
                database = self._reopen(database) or self._open_file(self._folder.open())
                database.put([(key, encode_record(key, embedding)) for key, embedding in batch])
                self.size = database.size
                for drop in _PASSING:
                    self._complaints.pop(drop, None)
            except BaseException as error:  # whatever it is, the thread goes on
                self._give_up(database, error)
                database = None
            del batch
        if database is not None:
            database.close()

    def _next_batch(self) -> list[tuple[bytes, CachedEmbedding]]:
        """Wait for embeddings to write, and return some of them; none at the end."""
        with self._condition:
            self._is_writing = False
            self._condition.wait_for(lambda: self._waiting or self._is_closing)
            if len(self._waiting) < BATCH_RECORDS and not self._is_closing:
                self._condition.wait_for(self._has_batch, LINGER_S)
            batch = [self._waiting.popleft() for _ in range(min(BATCH_RECORDS, len(self._waiting)))]
            self._waiting_bytes -= sum(embedding.values.nbytes for _, embedding in batch)
            self._is_writing = bool(batch)
        return batch

    def _has_batch(self) -> bool:
        return len(self._waiting) >= BATCH_RECORDS or self._is_closing

    # On both threads.

    def _open_file(self, path: Path) -> EmbeddingDatabase:
        """Open a file. If it is damaged, replace it first."""
        try:
            database = EmbeddingDatabase(path, self._most_bytes)
        except DamagedDatabase as error:
            database = EmbeddingDatabase(self._replace(path, error), self._most_bytes)
        self.size = database.size
        return database

    def _replace(self, path: Path, error: DamagedDatabase) -> Path:
        self._complain(Drop.FILE_DAMAGED, f"{path.name} is dropped: {one_line(error)}")
        return self._folder.replace(path)

    def _give_up(self, database: EmbeddingDatabase | None, error: BaseException) -> None:
        """Close the file after an error, and replace it if it is damaged."""
        try:
            if database is not None:
                database.close()
            if isinstance(error, DamagedDatabase) and database is not None:
                self._replace(database.path, error)
                return
        except (sqlite3.Error, OSError) as other:
            error = other
        if not isinstance(error, DamagedDatabase | sqlite3.Error | OSError):
            logger.error("the embedding cache in %s failed", self._folder.root, exc_info=error)
        is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        self._complain(Drop.DISK_FULL if is_full else Drop.DISK_FAILED, one_line(error))

    def _complain(self, drop: Drop, message: str) -> None:
        self._on_drop(drop)
        if self._complaints.get(drop) != message:
            self._complaints[drop] = message
            logger.warning("the embedding cache in %s: %s", self._folder.root, message)
