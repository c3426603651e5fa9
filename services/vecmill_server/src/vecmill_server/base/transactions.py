"""Transactions of SQLite databases."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def run_transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commit the statements of the block together, or none if it raises.

    `kind` is that of the statement BEGIN. The connection must have no transaction of its own
    (`isolation_level` is `None`).
    """
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself rolls back after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
