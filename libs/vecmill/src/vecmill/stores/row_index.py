"""The ids of an input and of a collection, in a temporary database on disk.

Ten million rows take about 1.3 GB of disk while a run lasts, and its cache 64 MB of memory.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from vecmill.stores.vector_store import StoredRow

_AT_ONCE = 500  # ids of a query
_CACHE_KB = 65_536

_TABLES = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -{_CACHE_KB};
CREATE TABLE input (id TEXT PRIMARY KEY, place INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE stored (document TEXT, key TEXT, source TEXT, digest TEXT, PRIMARY KEY (document, key))
WITHOUT ROWID;
"""


class RowIndex:
    """The ids of the input with their places, and all rows of the collection. For one thread at a time."""

    def __init__(self) -> None:
        # A database without a name is a file that SQLite removes at the end.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(_TABLES)
        # Never ended: nobody else reads it, and a transaction for each row takes longer than the row.
        self._database.execute("BEGIN")

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def add_input(self, row_id: str, place: int) -> int | None:
        """Add a row of the input; if another has this id, return its place instead."""
        found = self._database.execute("SELECT place FROM input WHERE id = ?", (row_id,)).fetchone()
        if found is not None:
            return int(found[0])
        self._database.execute("INSERT INTO input VALUES (?, ?)", (row_id, place))
        return None

    def place_of(self, row_id: str) -> int | None:
        """Return the place of the row of the input with an id, `None` if there is none."""
        found = self._database.execute("SELECT place FROM input WHERE id = ?", (row_id,)).fetchone()
        return None if found is None else int(found[0])

    def leave_out(self, row_ids: Iterable[str]) -> None:
        """Forget rows of the input."""
        self._database.executemany("DELETE FROM input WHERE id = ?", ((each,) for each in row_ids))

    def add_stored(self, rows: Iterable[StoredRow]) -> None:
        """Add rows of the collection."""
        self._database.executemany(
            "INSERT OR REPLACE INTO stored VALUES (?, ?, ?, ?)",
            ((row.document, row.key, row.source, row.digest) for row in rows),
        )

    def stored(self, documents: Sequence[str]) -> dict[str, list[StoredRow]]:
        """Return the rows of the collection of each of some texts."""
        found: dict[str, list[StoredRow]] = {document: [] for document in documents}
        for at in range(0, len(documents), _AT_ONCE):
            asked = documents[at : at + _AT_ONCE]
            marks = ",".join("?" * len(asked))
            for row in self._database.execute(
                f"SELECT key, document, source, digest FROM stored WHERE document IN ({marks})",
                asked,
            ):
                found[row[1]].append(StoredRow(*row))
        return found

    def find_conflict(self, source: str) -> tuple[str, int, str | None] | None:
        """Return an id of the input that the collection has from elsewhere, its place, the other source."""
        found: tuple[str, int, str | None] | None = self._database.execute(
            "SELECT id, place, source FROM stored JOIN input ON id = document WHERE source IS NOT ? LIMIT 1",
            (source,),
        ).fetchone()
        return found

    def vanished(self, source: str, at_once: int) -> Iterator[list[str]]:
        """Return the keys of the rows from a source whose texts are not in the input, in lists."""
        found = self._database.execute(
            "SELECT key FROM stored WHERE source = ? AND document NOT IN (SELECT id FROM input)", (source,)
        )
        while keys := [key for (key,) in found.fetchmany(at_once)]:
            yield keys

    def count(self, source: str) -> tuple[int, int]:
        """Return the number of the collection's rows from a source, and from elsewhere."""
        query = "SELECT COALESCE(SUM(source IS ?), 0), COALESCE(SUM(source IS NOT ?), 0) FROM stored"
        mine, others = self._database.execute(query, (source, source)).fetchone()
        return int(mine), int(others)
