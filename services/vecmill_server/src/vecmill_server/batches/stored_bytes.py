"""The bytes that each owner stores, and the limits on them.

All owners together may store `--max-stored-bytes`, and each owner an equal share of it, so that no owner can
use up the space of another. Each file counts `FILE_BYTES` more than its content, so empty files are limited
too. Bytes are counted before they are written. The counts are in memory only. At the start, the store counts
the files in the database.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from vecmill_server.base.errors import StorageFull
from vecmill_server.batches.database import OPEN, Database

# What a file counts besides its content: its row in the database, and its entry on the disk. ext4 has one
# such entry for each 16 KiB of the disk by default, so a store that fits on the disk does not use up all.
FILE_BYTES = 16 * 1024
# What an open batch counts besides its results: it may end with two files.
BATCH_BYTES = 2 * FILE_BYTES


def count_bytes(database: Database) -> dict[str, int]:
    """Return what all files and open batches count, by owner."""
    query = f"""
        SELECT owner, sum(bytes) AS bytes FROM (
            SELECT owner, bytes + {FILE_BYTES} AS bytes FROM files
            UNION ALL SELECT owner, output_bytes + error_bytes + {BATCH_BYTES} FROM batches
                WHERE status IN {OPEN}
        ) GROUP BY owner
    """
    return {row["owner"]: row["bytes"] for row in database.execute(query)}


_EACH_FILE = f"Each file counts {FILE_BYTES} bytes more than its content."


class StoredBytes:
    """The bytes of files, of open batches with their results, and of uploads. Use from one thread.

    `owner_count` returns the number of owners that share `max_bytes`. `total` are the bytes of all owners.
    """

    def __init__(self, max_bytes: int, owner_count: Callable[[], int], stored: Mapping[str, int]) -> None:
        self._max_bytes = max_bytes
        self._owner_count = owner_count
        self._by_owner = Counter(stored)
        self.total = self._by_owner.total()

    def of(self, owner: str) -> int:
        """Return the bytes of an owner."""
        return self._by_owner[owner]

    def take(self, owner: str, size: int) -> None:
        """Count bytes that will be written. Raises `StorageFull`, and then counts nothing."""
        self.check(owner, size)
        self._by_owner[owner] += size
        self.total += size

    @contextmanager
    def taken(self, owner: str, size: int) -> Iterator[None]:
        """Take bytes, and give them back if the block raises. Raises `StorageFull`."""
        self.take(owner, size)
        try:
            yield
        except BaseException:
            self.give_back(owner, size)
            raise

    def give_back(self, owner: str, size: int) -> None:
        """Stop counting bytes that were deleted or not written."""
        self._by_owner[owner] -= size
        self.total -= size
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def check(self, owner: str, size: int) -> None:
        """Raise `StorageFull` if `size` more bytes would pass a limit."""
        share = self._max_bytes // max(1, self._owner_count())
        own_room, room = share - self._by_owner[owner], self._max_bytes - self.total
        if size <= min(own_room, room):
            return
        if own_room < room:
            message = (
                f"Your files would be larger than {share} bytes, the share of a key in --max-stored-bytes. "
                f"{_EACH_FILE} Delete some files first."
            )
        else:
            message = (
                f"The files of the server would be larger than {self._max_bytes} bytes. {_EACH_FILE} Delete "
                "some files first, or start the server with a larger --max-stored-bytes."
            )
        raise StorageFull(message, room=max(0, min(own_room, room)))


@dataclass(slots=True)
class Reservation:
    """The bytes that an upload has taken so far. Use from the thread of `stored`."""

    stored: StoredBytes
    owner: str
    size: int = 0

    def grow(self, size: int) -> None:
        """Take more bytes. Raises `StorageFull`."""
        self.stored.take(self.owner, size)
        self.size += size

    def keep(self) -> None:
        """Leave the bytes to the file that was added."""
        self.size = 0

    def release(self) -> None:
        """Give back the bytes of an upload that failed. After `keep`, there are none."""
        self.stored.give_back(self.owner, self.size)
        self.size = 0
