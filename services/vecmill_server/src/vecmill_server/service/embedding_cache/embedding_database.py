"""The SQLite file of embeddings: records by key, within a number of bytes, the oldest dropped first.

An embedding is worth no more than its computation, so nothing waits for the disk (`synchronous = OFF`). If
the machine stops, the file may be damaged; then it is dropped. If only the process stops, SQLite's journal
restores the file. There is no write-ahead log: its index is a file mapped into memory, and a process that
reads such a file after another program has shortened it is killed (SIGBUS).
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from vecmill_server.base.transactions import run_transaction
from vecmill_server.service.embedding_cache.embedding_folder import VERSION

# Records of most models fill such pages well. Half of a page of 4 KiB would be lost to many of them.
PAGE_BYTES = 16 * 1024
LEAST_BYTES = 1024 * PAGE_BYTES
APPLICATION_ID = 0x76656331
# Longer than another process needs to write a batch.
BUSY_S = 0.5
MOST_RECORD_BYTES = 1024 * 1024
CACHED_KIB = 4096
TABLE = "CREATE TABLE results (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, record BLOB NOT NULL)"
# So many more embeddings are dropped than are written, when the file is full.
_DROPPED = 16
# More than the pages of the table and the index that a batch divides.
_SPARE_PAGES = 16

# The errors of SQLite that are not about the content of the file.
_NOT_DAMAGE = frozenset(
    {
        *(sqlite3.SQLITE_AUTH, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOLFS),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY),
    }
)


class DamagedDatabase(Exception):
    """A file is not one of embeddings, its content is damaged, or it is larger than the limit."""


class EmbeddingDatabase:
    """An open file of embeddings. Use from one thread. Methods raise `DamagedDatabase`, `sqlite3.Error`."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Open a file, and make its table if it is empty."""
        self.path = path
        self._pages = max(most_bytes, LEAST_BYTES) // PAGE_BYTES
        self._connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_S
        )
        try:
            with _damage():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        with _damage():
            return self._number("page_count") * PAGE_BYTES

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each key. The file is locked once for all of them."""
        with _damage():
            if len(keys) == 1:
                return [self._get(keys[0])]
            with run_transaction(self._connection, "DEFERRED"):
                return [self._get(key) for key in keys]

    def _get(self, key: bytes) -> bytes | None:
        row = self._connection.execute("SELECT record FROM results WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], bytes):
            raise DamagedDatabase("a record is not of bytes")
        return row[0]

    def put(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Write records by key in one transaction, and drop the oldest ones if the file is nearly full."""
        fitting = [each for each in records if len(each[1]) < MOST_RECORD_BYTES]
        # Pages are not filled to the last byte, and each key is in the index too.
        needed = 2 * (sum(len(record) for _, record in fitting) // PAGE_BYTES) + _SPARE_PAGES
        with _damage(), run_transaction(self._connection):
            while self._free_pages() < needed and self._delete_oldest(len(fitting) + _DROPPED):
                pass
            self._connection.executemany(
                "INSERT OR REPLACE INTO results (key, record) VALUES (?, ?)", fitting
            )

    def _free_pages(self) -> int:
        """Return how many pages may still be filled."""
        return self._pages - self._number("page_count") + self._number("freelist_count")

    def _delete_oldest(self, count: int) -> int:
        """Delete the oldest records, and return how many there were."""
        return self._connection.execute(
            "DELETE FROM results WHERE id IN (SELECT id FROM results ORDER BY id LIMIT ?)", (count,)
        ).rowcount

    def _number(self, pragma: str) -> int:
        found: int = self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return found

    def _prepare(self) -> None:
        connection = self._connection
        connection.text_factory = bytes  # a damaged value need not be Unicode
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_RECORD_BYTES)
        for pragma in (
            f"page_size = {PAGE_BYTES}",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "mmap_size = 0",
            # Without a journal, a reader need not look whether there is something in it.
            "journal_mode = DELETE",
            "synchronous = OFF",
            f"cache_size = -{CACHED_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        if self._number("user_version") == 0:
            self._make_table()
        schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        marks = self._number("user_version"), self._number("application_id"), self._number("page_size")
        if marks != (VERSION, APPLICATION_ID, PAGE_BYTES) or schema != [(TABLE.encode(),)]:
            raise DamagedDatabase("it is not a file of results")
        if self._number("page_count") > self._pages:
            raise DamagedDatabase("it is larger than --result-cache-disk-bytes")
        self._connection.execute(f"PRAGMA max_page_count = {self._pages}").fetchall()

    def _make_table(self) -> None:
        with run_transaction(self._connection):
            # Another process may have made it in the meantime.
            if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchall():
                self._connection.execute(TABLE)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _damage() -> Iterator[None]:
    """Raise `DamagedDatabase` for the errors that a damaged file causes."""
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        is_short = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
        if code in _NOT_DAMAGE and not is_short:
            raise
        raise DamagedDatabase(str(error)) from error


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary code of an error of SQLite, `None` for an error of its Python module."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
