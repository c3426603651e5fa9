"""The rows of an input: readers of JSON lines, CSV and Parquet.

A source returns a record for each row, in order, with the values of the requested columns, and holds only a
few rows in memory. An invalid row, such as a line that is not JSON, is a record with a problem. A file that
cannot be read to its end raises `InvalidCorpus`.
"""

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from vecmill.bulk.input_files import (
    BUFFER_BYTES,
    COMPRESSIONS,
    InputFile,
    find_other_encoding,
    first_line,
    import_arrow,
    is_compressed,
    open_bytes,
    read_lines,
)
from vecmill.bulk.picture_inputs import LocalPictures, PictureFolder
from vecmill.bulk.records import NOT_UTF8, Record, is_writable
from vecmill.errors import InvalidCorpus
from vecmill.models.fingerprint import hash_file
from vecmill.values.json_text import decode_json

# Read from Parquet at a time.
BATCH_ROWS = 512
BATCH_BYTES = 16 * 2**20

_DELIMITERS = ",;\t"

# The default limit of the csv module, meant to detect missing quotes, is too low for long texts.
_MOST_CHARACTERS = 2**31 - 1


class Source(ABC):
    """A file of rows. `unit`: the unit of places, line or row. `is_closed`: all rows have equal columns.

    `has_pictures`: its first column has pictures, whatever the options say.
    """

    unit: ClassVar[str]
    is_closed: ClassVar[bool]
    has_pictures: ClassVar[bool] = False

    def __init__(self, path: InputFile) -> None:
        self.path = path

    @abstractmethod
    def columns(self) -> Mapping[str, bool]:
        """Return the columns, and whether each holds strings.

        If not `is_closed`, only the first row is considered.
        """

    @abstractmethod
    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows, in order, with the values of these columns; `None` for a missing value."""

    def sha256(self) -> str:
        """Return the hexadecimal digest of the input."""
        return hash_file(Path(str(self.path)))

    def arrow_types(self) -> Mapping[str, Any]:
        """Return the Arrow types of the columns, by default none."""
        return {}

    def find_pictures(self, folder: Path | None) -> PictureFolder:
        """Return where the pictures are that rows name: in `folder`, by default in that of the file."""
        return LocalPictures.of(folder or Path(str(self.path)).parent)

    def find_other_encoding(self) -> str | None:
        """Return the error message for a text file in an encoding other than UTF-8."""
        return find_other_encoding(self.path) if self.unit == "line" else None


class JsonLines(Source):
    """A file with one JSON object per line, in UTF-8; empty lines are skipped."""

    unit = "line"
    is_closed = False

    def columns(self) -> Mapping[str, bool]:
        """Return the fields of the first row, and whether each is a string."""
        return {name: isinstance(value, str) for name, value in self.first_row().items()}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows with the values of the columns `names`; see `Source.records`."""
        return (read_object(place, row, names) for place, row in self._rows())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Return the lines with rows, each with its place, without parsing them."""
        with open_bytes(self.path) as file:
            for place, line in enumerate(read_lines(self.path, file), 1):
                if not line.isspace():
                    yield place, line

    def first_row(self) -> Mapping[str, Any]:
        """Return the fields of the first row that is a JSON object; none if no row is."""
        return next((row for _, row in self._rows() if isinstance(row, dict)), {})

    def _rows(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Return the place of each row with its fields, or with its problem."""
        return ((place, parse_line(line)) for place, line in self.lines())


class RowSequence(Source):
    """Rows of a program, each with its columns by name."""

    unit = "row"
    is_closed = False

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(Path("the given rows"))
        self._given = rows

    def columns(self) -> Mapping[str, bool]:
        """Return the columns of the first row, and whether each is a string."""
        first = self._given[0] if self._given else {}
        is_row = isinstance(first, Mapping)
        return {name: isinstance(value, str) for name, value in first.items()} if is_row else {}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows with the values of the columns `names`; see `Source.records`."""
        for place, row in enumerate(self._given, 1):
            is_row = isinstance(row, Mapping)
            yield read_object(place, dict(row) if is_row else "is no mapping of column names", names)

    def sha256(self) -> str:
        """Return nothing: the rows of a program do not change while it waits."""
        return ""


class CommaSeparated(Source):
    """A CSV file in UTF-8 whose first row holds the names of the columns.

    The delimiter is the most frequent of comma, semicolon and tab in the first line.
    """

    unit = "line"
    is_closed = True

    def columns(self) -> Mapping[str, bool]:
        """Return the fields of the first row; all columns hold strings."""
        _, names = next(self._rows(), (0, []))
        return dict.fromkeys(names, True)

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows with the values of the columns `names`; see `Source.records`."""
        rows = self._rows()
        _, header = next(rows, (0, []))
        refuse_duplicates(self.path, header, names)
        places = [header.index(name) for name in names]
        for place, row in rows:
            if len(row) == len(header):
                yield Record(place, tuple(row[index] for index in places))
            else:
                problem = f"has {len(row)} fields, but the first line has {len(header)} columns"
                yield Record(place, problem=problem)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Return the fields of each row, with the number of its first line."""
        csv.field_size_limit(_MOST_CHARACTERS)
        # Invalid UTF-8 becomes surrogates, so that only its own row has a problem.
        with (
            open_bytes(self.path) as opened,
            TextIOWrapper(opened, "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            lines = read_lines(self.path, file)
            first = next(lines, "")
            if not is_writable(first):
                raise InvalidCorpus(
                    find_other_encoding(self.path)
                    or f"The first line of {self.path} is not UTF-8. Save the file as UTF-8."
                )
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


class Parquet(Source):
    """A Parquet file."""

    unit = "row"
    is_closed = True

    def __init__(self, path: InputFile) -> None:
        super().__init__(path)
        self._arrow = import_arrow()

    def columns(self) -> Mapping[str, bool]:
        """Return all top-level columns, and whether each holds strings."""
        return {name: _holds_strings(self._arrow, kind) for name, kind in self.arrow_types().items()}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return all rows with the values of the columns `names`; see `Source.records`."""
        place = 0
        try:
            with self.opened() as file:
                refuse_duplicates(self.path, file.schema_arrow.names, names)
                size = count_batch_rows(file.metadata, names)
                for batch in file.iter_batches(batch_size=size, columns=list(names)):
                    values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
                    for row in zip(*values, strict=True):
                        place += 1
                        yield Record(place, row)
        except (OSError, ValueError, NotImplementedError) as error:
            raise InvalidCorpus(
                f"{self.path} cannot be read after row {place}: {first_line(error)}."
            ) from error

    def arrow_types(self) -> Mapping[str, Any]:
        """Return the Arrow types of the columns."""
        with self.opened() as file:
            return {field.name: field.type for field in file.schema_arrow}

    def opened(self) -> Any:
        """Open the file as a `pyarrow.parquet.ParquetFile`, to use with `with`. Raises `InvalidCorpus`."""
        from pyarrow import parquet

        try:
            source = self.path if isinstance(self.path, Path) else self.path.open("rb")
            # With other settings pyarrow would read all row groups ahead, or a whole row group at once.
            return parquet.ParquetFile(source, pre_buffer=False, buffer_size=BUFFER_BYTES)
        except (OSError, ValueError) as error:
            raise InvalidCorpus(
                f"{self.path} cannot be read as a Parquet file: {first_line(error)}."
            ) from error


_SOURCES: Mapping[str, type[Source]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".csv": CommaSeparated,
    ".parquet": Parquet,
}


def open_source(path: Path) -> Source:
    """Open a local file by its file name extension. Raises `InvalidCorpus`, `MissingExtra`."""
    kind = _kind_of(path)
    if not path.is_file():
        raise InvalidCorpus(f"There is no file {path}.")
    return kind(path)


def source_of(path: InputFile) -> Source:
    """Return the source for a file by its file name extension. Raises `InvalidCorpus`."""
    return _kind_of(path)(path)


def _kind_of(path: InputFile) -> type[Source]:
    is_packed = is_compressed(path)
    name = str(path)
    kind = _SOURCES.get(Path(name[: -len(path.suffix)] if is_packed else name).suffix.lower())
    if kind is None or (is_packed and kind is Parquet):
        raise InvalidCorpus(
            f"{path}: the file name extension must be one of {', '.join(_SOURCES)}. All but .parquet may be "
            f"followed by {' or '.join(COMPRESSIONS)}."
        )
    return kind


def _holds_strings(arrow: Any, kind: Any) -> bool:
    value_type = kind.value_type if arrow.types.is_dictionary(kind) else kind
    checks = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_string_view)
    return any(check(value_type) for check in checks)


def count_batch_rows(metadata: Any, names: Sequence[str]) -> int:
    """Return how many rows of these columns of a Parquet file are read at a time, by their mean size."""
    row_bytes = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(place) for place in range(group.num_columns))
        sizes = [
            column.total_uncompressed_size
            for column in columns
            if column.path_in_schema.partition(".")[0] in names or column.path_in_schema in names
        ]
        row_bytes = max(row_bytes, sum(sizes) / max(group.num_rows, 1))
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / row_bytes)))


def refuse_duplicates(path: InputFile, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise `InvalidCorpus` if a file has several columns of a requested name."""
    for name in names:
        if header.count(name) > 1:
            raise InvalidCorpus(
                f"{path} has {header.count(name)} columns named {name!r}. Rename all but one."
            )


def parse_line(line: bytes) -> dict[str, Any] | str:
    """Return the JSON object of a line, or the problem of a line without a JSON object."""
    try:
        row = decode_json(line)
    except UnicodeDecodeError:
        return NOT_UTF8
    except ValueError as error:
        return f"is not JSON: {error}"
    return row if isinstance(row, dict) else "is not a JSON object"


def read_object(place: int, row: dict[str, Any] | str, names: Sequence[str]) -> Record:
    """Return the record of a row, which is given by its fields or by its problem."""
    if isinstance(row, dict):
        return Record(place, tuple(map(row.get, names)))
    return Record(place, problem=row)
