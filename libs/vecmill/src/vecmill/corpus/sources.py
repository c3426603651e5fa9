"""Reading the rows of a file, one after the other: JSON lines, CSV, Parquet.

A source is told which columns are wanted and gives a record for each row, in order, holding no more than a
few at a time. A row that is no row (a line that is not JSON) is a record with a problem; a file that cannot
be read on from some place raises `InvalidCorpus`.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader, TextIOWrapper
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from vecmill.corpus.records import Record, is_writable
from vecmill.errors import InvalidCorpus, MissingExtra

BATCH_ROWS = 512  # read from Parquet at a time
BUFFER_BYTES = 2**20  # held of each column of it

_DELIMITERS = ",;\t"
_COMPRESSIONS = MappingProxyType({".gz": "gzip", ".zst": "zstd"})

# A text may be longer than what the csv module takes for a sign of a missing quote.
_MOST_CHARACTERS = 2**31 - 1


T = TypeVar("T")


class Source(Protocol):
    """A file of rows. `unit` is what its places count; `is_closed` whether all rows have the same columns."""

    path: Path
    unit: str
    is_closed: bool

    def columns(self) -> Mapping[str, bool]:
        """The columns, and whether each holds strings; where not closed, those of the first row."""
        ...

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """All rows, in order, with the values of these columns; `None` where a row has none."""
        ...

    def types(self) -> Mapping[str, Any]:
        """The Arrow types of the columns, where the file says them."""
        ...


class JsonLines:
    """One JSON object a line, in UTF-8; empty lines are no rows."""

    unit = "line"
    is_closed = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def columns(self) -> Mapping[str, bool]:
        """The fields of the first row."""
        for _, row in self._rows():
            if isinstance(row, dict):
                return {name: isinstance(value, str) for name, value in row.items()}
        return {}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """As `Source.records`."""
        for place, row in self._rows():
            if isinstance(row, dict):
                yield Record(place, tuple(map(row.get, names)))
            else:
                yield Record(place, problem=row)

    def types(self) -> Mapping[str, Any]:
        """Nothing: JSON has no types."""
        return {}

    def _rows(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """The place of each row with its fields, or with what is wrong with it."""
        with _open(self.path) as file:
            for place, line in enumerate(_read_lines(self.path, file), 1):
                if not line.isspace():
                    yield place, _parse_line(line)


class CommaSeparated:
    """CSV as spreadsheets write it, in UTF-8, its first row the names of the columns.

    Fields are parted by whichever of comma, semicolon and tab is most often in the first line.
    """

    unit = "line"
    is_closed = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def columns(self) -> Mapping[str, bool]:
        """The fields of the first row."""
        _, names = next(self._rows(), (0, []))
        return dict.fromkeys(names, True)

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """As `Source.records`."""
        rows = self._rows()
        _, header = next(rows, (0, []))
        _refuse_doubles(self.path, header, names)
        places = [header.index(name) for name in names]
        for place, row in rows:
            if len(row) == len(header):
                yield Record(place, tuple(row[index] for index in places))
            else:
                problem = f"has {len(row)} fields, where the first line names {len(header)} columns"
                yield Record(place, problem=problem)

    def types(self) -> Mapping[str, Any]:
        """Nothing: all is text."""
        return {}

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line that each row begins on, and its fields."""
        csv.field_size_limit(_MOST_CHARACTERS)
        # What is not UTF-8 becomes halves of surrogate pairs, so that it is a problem of its own row.
        with TextIOWrapper(_open(self.path), "utf-8-sig", "surrogateescape", newline="") as file:
            lines = _read_lines(self.path, file)
            first = next(lines, "")
            if not is_writable(first):
                raise InvalidCorpus(f"The first line of {self.path} is not in UTF-8. Save it in UTF-8.")
            delimiter = max(_DELIMITERS, key=first.count)
            reader = csv.reader(chain([first], lines), strict=True, delimiter=delimiter)
            place = 1
            try:
                for row in reader:
                    if row:
                        yield place, row
                    place = reader.line_num + 1
            except csv.Error as error:
                raise InvalidCorpus(f"{self.path}: line {place} is not CSV: {error}.") from error


class Parquet:
    """A Parquet file."""

    unit = "row"
    is_closed = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrow = import_arrow()

    def columns(self) -> Mapping[str, bool]:
        """All columns, but of nested ones the outermost."""
        return {name: _holds_strings(self._arrow, kind) for name, kind in self.types().items()}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """As `Source.records`."""
        place = 0
        try:
            with self._open() as file:
                _refuse_doubles(self.path, file.schema_arrow.names, names)
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(names)):
                    values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
                    for row in zip(*values, strict=True):
                        place += 1
                        yield Record(place, row)
        except (OSError, ValueError, NotImplementedError) as error:
            raise InvalidCorpus(
                f"{self.path} cannot be read beyond row {place}: {_first_line(error)}."
            ) from error

    def types(self) -> Mapping[str, Any]:
        """As the file says."""
        with self._open() as file:
            return {field.name: field.type for field in file.schema_arrow}

    def _open(self) -> Any:
        from pyarrow import parquet

        try:
            # Without these it would read the columns of all row groups ahead, or a whole group at once.
            return parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=BUFFER_BYTES)
        except (OSError, ValueError) as error:
            raise InvalidCorpus(
                f"{self.path} cannot be read as a Parquet file: {_first_line(error)}."
            ) from error


_SOURCES: Mapping[str, type[JsonLines | CommaSeparated | Parquet]] = MappingProxyType(
    {".jsonl": JsonLines, ".ndjson": JsonLines, ".csv": CommaSeparated, ".parquet": Parquet}
)


def open_source(path: Path) -> Source:
    """The source for a file, by its ending. Raises `InvalidCorpus`, `MissingExtra`."""
    is_compressed = path.suffix.lower() in _COMPRESSIONS
    kind = _SOURCES.get((path.with_suffix("") if is_compressed else path).suffix.lower())
    if kind is None or (is_compressed and kind is Parquet):
        raise InvalidCorpus(
            f"{path} has none of the endings that can be read: {', '.join(_SOURCES)}; all but .parquet "
            f"may be followed by {' or '.join(_COMPRESSIONS)}."
        )
    if not path.is_file():
        raise InvalidCorpus(f"There is no file {path}.")
    return kind(path)


def import_arrow() -> Any:
    """pyarrow. Raises `MissingExtra`."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(
            "Parquet and compressed files need pyarrow: install it with pip install 'vecmill[corpus]'."
        ) from error
    return pyarrow


def _holds_strings(arrow: Any, kind: Any) -> bool:
    value_type = kind.value_type if arrow.types.is_dictionary(kind) else kind
    checks = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_string_view)
    return any(check(value_type) for check in checks)


def _refuse_doubles(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if header.count(name) > 1:
            raise InvalidCorpus(
                f"{path} has {header.count(name)} columns named {name!r}. Rename all but one."
            )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _parse_line(line: bytes) -> dict[str, Any] | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return row if isinstance(row, dict) else "is not a JSON object"


def _open(path: Path) -> Any:
    """The bytes of a file, unpacked if its ending says that they are packed."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    try:
        if compression is None:
            return path.open("rb")
        return BufferedReader(import_arrow().input_stream(path, compression=compression), BUFFER_BYTES)
    except OSError as error:
        raise InvalidCorpus(f"{path} cannot be read: {error.strerror}.") from error


def _read_lines(path: Path, file: Iterator[T]) -> Iterator[T]:
    try:
        yield from file
    except OSError as error:
        raise InvalidCorpus(f"{path} cannot be read to its end: {_first_line(error)}.") from error
