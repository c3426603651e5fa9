"""The SQLite database of the store: its migration, its transactions, and the statements that tables share."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill_server.base.errors import UnknownObject
from vecmill_server.batches.objects import Page
from vecmill_server.batches.tables import MIGRATIONS, SCHEMA, VERSION


class Database:
    """An open database. Use from one thread."""

    def __init__(self, path: Path) -> None:
        """Open the database, and migrate it from an earlier version.

        Raises `InvalidConfig` if the database is of a newer version. Raises `sqlite3.Error` if the
        database cannot be read.
        """
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        try:
            self._prepare(path)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together, or none if it raises."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite itself rolls back after some errors, such as a full disk.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        return self._connection.execute(statement, values)

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Insert a row."""
        marks = ", ".join("?" * len(row))
        self.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def find(self, table: str, object_id: str, owner: str | None = None) -> sqlite3.Row | None:
        """Return the row of an object of `owner`, or of any owner if `owner` is `None`."""
        # SQLite cannot bind a lone surrogate. Ids are ASCII.
        if not object_id.isascii():
            return None
        condition, values = ("", ()) if owner is None else (" AND owner = ?", (owner,))
        row: sqlite3.Row | None = self.execute(
            f"SELECT * FROM {table} WHERE id = ?{condition}", (object_id, *values)
        ).fetchone()
        return row

    def page(
        self, table: str, owner: str, page: Page, condition: str = "1", values: tuple[Any, ...] = ()
    ) -> tuple[list[sqlite3.Row], bool]:
        """Return a page of the objects of `owner` that meet the condition, and whether more follow.

        Raises `UnknownObject` if `after` names no object of the owner.
        """
        condition, values = f"owner = ? AND {condition}", (owner, *values)
        if page.after is not None:
            condition += f" AND place {'<' if page.newest_first else '>'} ?"
            values = (*values, self._place(table, owner, page.after))
        order = "DESC" if page.newest_first else "ASC"
        rows = self.execute(
            f"SELECT * FROM {table} WHERE {condition} ORDER BY place {order} LIMIT ?",
            (*values, page.limit + 1),
        ).fetchall()
        return rows[: page.limit], len(rows) > page.limit

    def keep_newest(self, table: str, condition: str, count: int, by: str = "place") -> int:
        """Delete the oldest objects of each owner with more than `count` that meet the condition.

        `by` is the column of their age. Returns the number of deleted objects.
        """
        return self.execute(
            f"""DELETE FROM {table} WHERE place IN (SELECT place FROM (
                SELECT place, row_number() OVER (PARTITION BY owner ORDER BY {by} DESC) AS number
                FROM {table} WHERE {condition}) WHERE number > ?)""",
            (count,),
        ).rowcount

    def _place(self, table: str, owner: str, object_id: str) -> int:
        """Return the place of an object in its list, also of a file that was deleted within the last day."""
        row = self.find(table, object_id, owner)
        if row is None and table == "files":
            row = self.find("deleted_files", object_id, owner)
        if row is None:
            raise UnknownObject(f"This list has no entry with the id `{object_id[:100]}`.", field="after")
        place: int = row["place"]
        return place

    def _prepare(self, path: Path) -> None:
        version = self.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InvalidConfig(
                f"The batches in {path.parent} were written by a newer vecmill version. Use that version, or "
                "name another folder with --batch-dir."
            )
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = FULL")
        if version == VERSION:
            return
        changes = SCHEMA if version == 0 else "".join(MIGRATIONS[old] for old in range(version, VERSION))
        self._connection.executescript(f"BEGIN; {changes} PRAGMA user_version = {VERSION}; COMMIT;")
