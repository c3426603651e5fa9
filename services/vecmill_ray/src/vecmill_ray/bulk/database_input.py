"""The input that is the result of a query to a database.

The database is reached through SQLAlchemy, whose addresses (`postgresql://host/name`) name the driver. It is
read in ranges of a key column. The database compares the keys, so any key that it can sort works.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vecmill.bulk.picture_inputs import PictureFolder
from vecmill.bulk.records import Record
from vecmill.bulk.sources import Source
from vecmill.errors import InvalidConfig, InvalidCorpus, MissingExtra
from vecmill.values.aliases import JsonValue
from vecmill.values.messages import pip_command
from vecmill_ray.bulk.blocks import InputSpan, Position, Row

# The first part of SQLAlchemy's addresses, by the names of its dialects.
_DATABASE = re.compile(r"(?:postgresql|mysql|mariadb|sqlite|oracle|mssql|duckdb|snowflake)(?:\+\w+)?://")
_FETCH_ROWS = 1_000


def is_database(address: str) -> bool:
    """Return whether the address is that of a database."""
    return _DATABASE.match(address) is not None


class DatabaseInput:
    """The rows of a query, in the order of a key column, as a `BulkInput`.

    If it `is_local`, the database is a file, which other nodes do not reach. Raises `InvalidConfig`
    without a query and a key column.
    """

    unit = "row"

    def __init__(self, address: str, query: str | None, key_column: str | None) -> None:
        if query is None or key_column is None:
            raise InvalidConfig("A database needs --query and --key-column.")
        self._query = query.strip().rstrip(";")
        self._key = key_column
        self._engine = _create_engine(address)
        self.is_local = self._engine.dialect.name in ("sqlite", "duckdb")
        self.name = self._engine.url.render_as_string(hide_password=True)
        self.source: Source = _QuerySource(self)
        self.identity: JsonValue = [self.name, self._query, key_column]

    def spans(self, index: int) -> list[InputSpan]:
        """Return one span: only the database can divide its rows."""
        return [InputSpan(index, None, None)]

    def read(self, names: Sequence[str], start: Position, stop: Position, place: int) -> Iterator[Row]:
        """Return the rows of a range of keys, sorted by the key. `place` is the place of the first."""
        found = self.rows([self._key, *names], start, stop)
        for at, (key, *values) in enumerate(found, place):
            if not isinstance(key, int | str):
                raise InvalidCorpus(
                    f"The column {self._key!r} of {self.name} must hold integers or strings in every row, "
                    f"but row {at} has {type(key).__name__}."
                )
            yield Row(key, at, Record(at, tuple(_as_json_value(value) for value in values)))

    def find_pictures(self) -> PictureFolder:
        """Refuse to name a folder for the pictures of rows. Raises `InvalidConfig`."""
        raise InvalidConfig(
            f"{self.name}: pictures are read from files, not from a database. Write them to Parquet."
        )

    def rows(
        self,
        names: Sequence[str] | None,
        start: Position = None,
        stop: Position = None,
        limit: int | None = None,
    ) -> Iterator[Sequence[Any]]:
        """Return the rows of a range of keys; without `names`, one row of column names and then the rows."""
        from sqlalchemy import column, literal_column, select, text

        key = column(self._key)
        # Oracle allows no AS here, and no database needs it.
        table = text(f"({self._query}) vecmill_rows")
        picked = [literal_column("*")] if names is None else [column(name) for name in names]
        statement = select(*picked).select_from(table).limit(limit)
        if names is not None:
            statement = statement.order_by(key)
        if start is not None:
            statement = statement.where(key >= start)
        if stop is not None:
            statement = statement.where(key < stop)
        with self._connect() as connection:
            result = connection.execute(statement)
            if names is None:
                yield list(result.keys())
            yield from result

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        from sqlalchemy.exc import OperationalError, SQLAlchemyError

        try:
            with self._engine.connect() as connection:
                yield connection.execution_options(stream_results=True, yield_per=_FETCH_ROWS)
        except OperationalError as error:
            # The cause tells the caller that another attempt may succeed.
            raise InvalidCorpus(f"{self.name} cannot be read: {_reason(error)}.") from OSError(
                str(error.orig)
            )
        except SQLAlchemyError as error:
            raise InvalidCorpus(f"The query to {self.name} failed: {_reason(error)}.") from error


class _QuerySource(Source):
    """The rows of a query as a `Source`, for the choice of columns."""

    unit = "row"
    is_closed = True

    def __init__(self, database: DatabaseInput) -> None:
        self.path = _QueryName(database.name)
        self._database = database

    def columns(self) -> Mapping[str, bool]:
        """Return the columns of the query, and whether each holds a string in the first row."""
        rows = list(self._database.rows(None, limit=1))
        first = rows[1] if len(rows) > 1 else [""] * len(rows[0])
        return {str(name): isinstance(value, str) for name, value in zip(rows[0], first, strict=True)}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows; see `Source.records`."""
        rows = self._database.read(names, None, None, 1)
        return (row.record for row in rows if row.record is not None)


class _QueryName:
    """The name of a query in messages, in the place of a file."""

    suffix = ""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name

    def open(self, mode: Any = "rb") -> Any:
        """Raise `OSError`: a query is not a file."""
        raise OSError("a query is not a file")


def _create_engine(address: str) -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtra(
            f"Databases need SQLAlchemy: install it with {pip_command('install', 'vecmill-ray[database]')}, "
            "and the driver of your database."
        ) from error
    try:
        return sqlalchemy.create_engine(address)
    except (ImportError, sqlalchemy.exc.ArgumentError) as error:
        raise InvalidConfig(f"The address of the database cannot be used: {_reason(error)}.") from error


def _as_json_value(value: Any) -> Any:
    """Return the value, as text if JSON has no such type: dates, decimals, UUIDs."""
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0].rstrip(".")
