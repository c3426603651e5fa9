"""The rows of an input: readers of JSON lines, CSV and Parquet, and the division of rows into parts.

A source returns a record for each row, in order, with the values of the requested columns, and holds only a
few rows in memory. An invalid row, such as a line that is not JSON, is a record with a problem. A file that
cannot be read to its end raises `InvalidCorpus`.

A part has a maximum number of texts and of characters, so that memory is bounded. The same records always
make the same parts.
"""

import codecs
import csv
import gzip
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Protocol, TypeVar

from vecmill.errors import InvalidCorpus, MissingExtra
from vecmill.values.messages import pip_command

PART_TEXTS = 256
PART_CHARACTERS = 1_000_000

NO_CHARACTER = "half of a surrogate pair or a byte that is not UTF-8"
NOT_UTF8 = "is not UTF-8"


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the input: its line or row number `place`, from 1, and the `values` of its columns.

    `problem` describes the error in a row that cannot be embedded; such a row has no values.
    """

    place: int
    values: tuple[Any, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class InputPart:
    """Consecutive records, each with its text as the first value. `number` is the part's number, from 0."""

    number: int
    records: Sequence[Record]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def texts(self) -> list[str]:
        """The texts, in input order."""
        return [record.values[0] for record in self.records]

    def without(self, indices: Sequence[int]) -> "InputPart":
        """Return the part without the records at these indices."""
        out = frozenset(indices)
        return InputPart(self.number, [record for at, record in enumerate(self.records) if at not in out])

    def column(self, index: int) -> list[Any]:
        """Return the values of one column, in order; column 0 is the texts."""
        return [record.values[index] for record in self.records]


def cut_parts(records: Iterable[Record]) -> Iterator[InputPart]:
    """Divide all records into parts."""
    held: list[Record] = []
    characters = number = 0
    for record in records:
        held.append(record)
        characters += len(record.values[0])
        if len(held) >= PART_TEXTS or characters >= PART_CHARACTERS:
            yield InputPart(number, held)
            held, characters, number = [], 0, number + 1
    if held:
        yield InputPart(number, held)


def find_problem(value: Any) -> str | None:
    """Return why a value cannot be embedded, `None` if it can."""
    if value is None:
        return "has no text"
    if not isinstance(value, str):
        return f"has {_KINDS.get(type(value), 'something else')} where its text should be"
    return None if is_writable(value) else f"has {NO_CHARACTER} in its text"


def is_writable(value: Any) -> bool:
    """Return whether all text in a value can be written as UTF-8."""
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}

BATCH_ROWS = 512  # read from Parquet at a time
BUFFER_BYTES = 2**20  # read from a file, or a Parquet column, at a time

_DELIMITERS = ",;\t"

# The default limit of the csv module, meant to detect missing quotes, is too low for long texts.
_MOST_CHARACTERS = 2**31 - 1


T = TypeVar("T")


class InputFile(Protocol):
    """A file to read, by default a `Path`. `str` returns the name that error messages show."""

    @property
    def suffix(self) -> str: ...

    def open(self, mode: Any = ...) -> Any:
        """Open the file; with the mode `rb` for reading bytes. Raises `OSError`."""
        ...


class Source(ABC):
    """A file of rows. `unit`: the unit of places, line or row. `is_closed`: all rows have equal columns."""

    unit: ClassVar[str]
    is_closed: ClassVar[bool]

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

    def arrow_types(self) -> Mapping[str, Any]:
        """Return the Arrow types of the columns, by default none."""
        return {}

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
        with _open(self.path) as file:
            for place, line in enumerate(_read_lines(self.path, file), 1):
                if not line.isspace():
                    yield place, line

    def first_row(self) -> Mapping[str, Any]:
        """Return the fields of the first row that is a JSON object; none if no row is."""
        return next((row for _, row in self._rows() if isinstance(row, dict)), {})

    def _rows(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Return the place of each row with its fields, or with its problem."""
        return ((place, parse_line(line)) for place, line in self.lines())


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
            _open(self.path) as opened,
            TextIOWrapper(opened, "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            lines = _read_lines(self.path, file)
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
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(names)):
                    values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
                    for row in zip(*values, strict=True):
                        place += 1
                        yield Record(place, row)
        except (OSError, ValueError, NotImplementedError) as error:
            raise InvalidCorpus(
                f"{self.path} cannot be read after row {place}: {_first_line(error)}."
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
                f"{self.path} cannot be read as a Parquet file: {_first_line(error)}."
            ) from error


_SOURCES: Mapping[str, type[Source]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".csv": CommaSeparated,
    ".parquet": Parquet,
}


def _read_zst(file: Any) -> AbstractContextManager[Any]:
    # pyarrow's stream has no `readline`.
    return BufferedReader(import_arrow().input_stream(file, compression="zstd"), BUFFER_BYTES)


_COMPRESSIONS: Mapping[str, Callable[[Any], AbstractContextManager[Any]]] = {
    ".gz": gzip.open,
    ".zst": _read_zst,
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


def is_compressed(path: InputFile) -> bool:
    """Return whether the file name extension names a compressed format."""
    return path.suffix.lower() in _COMPRESSIONS


def _kind_of(path: InputFile) -> type[Source]:
    is_packed = is_compressed(path)
    name = str(path)
    kind = _SOURCES.get(Path(name[: -len(path.suffix)] if is_packed else name).suffix.lower())
    if kind is None or (is_packed and kind is Parquet):
        raise InvalidCorpus(
            f"{path}: the file name extension must be one of {', '.join(_SOURCES)}. All but .parquet may be "
            f"followed by {' or '.join(_COMPRESSIONS)}."
        )
    return kind


def import_arrow() -> Any:
    """Import and return pyarrow. Raises `MissingExtra`."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(
            "Parquet and .zst files need pyarrow: install it with "
            f"{pip_command('install', 'vecmill[corpus]')}."
        ) from error
    return pyarrow


def _holds_strings(arrow: Any, kind: Any) -> bool:
    value_type = kind.value_type if arrow.types.is_dictionary(kind) else kind
    checks = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_string_view)
    return any(check(value_type) for check in checks)


def refuse_duplicates(path: InputFile, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise `InvalidCorpus` if a file has several columns of a requested name."""
    for name in names:
        if header.count(name) > 1:
            raise InvalidCorpus(
                f"{path} has {header.count(name)} columns named {name!r}. Rename all but one."
            )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def parse_line(line: bytes) -> dict[str, Any] | str:
    """Return the JSON object of a line, or the problem of a line without a JSON object."""
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return row if isinstance(row, dict) else "is not a JSON object"


def read_object(place: int, row: dict[str, Any] | str, names: Sequence[str]) -> Record:
    """Return the record of a row, which is given by its fields or by its problem."""
    if isinstance(row, dict):
        return Record(place, tuple(map(row.get, names)))
    return Record(place, problem=row)


@contextmanager
def _open(path: InputFile) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed if its extension names a compressed format."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InvalidCorpus(f"{path} cannot be read: {error.strerror}.") from error
    decompress = _COMPRESSIONS.get(path.suffix.lower())
    with opened:
        if decompress is None:
            yield opened
        else:
            with decompress(opened) as file:
                yield file


def find_other_encoding(path: InputFile) -> str | None:
    """Return the error message for a file in an encoding other than UTF-8, with the command that converts it.

    Returns `None` for a file with at least one character of UTF-8 beyond ASCII, in which only some bytes are
    damaged. Reads the file to its end.
    """
    has_utf8, high_bytes = False, set[int]()
    with _open(path) as file:
        for number, line in enumerate(_read_lines(path, file)):
            marked = next((name for mark, name in _MARKS.items() if line.startswith(mark)), None)
            if number == 0 and marked is not None:
                return _advise_conversion(path, marked)
            # `surrogateescape` turns each byte that is not UTF-8 into U+DC80 to U+DCFF.
            characters = {ord(each) for each in line.decode("utf-8", "surrogateescape")}
            high_bytes |= {each - 0xDC00 for each in characters if 0xDC80 <= each <= 0xDCFF}
            has_utf8 = has_utf8 or any(0x7F < each < 0xDC80 or each > 0xDCFF for each in characters)
    if has_utf8 or not high_bytes:
        return None
    return _advise_conversion(path, "ISO-8859-1" if min(high_bytes) >= _FIRST_OF_LATIN_1 else "WINDOWS-1252")


# That of UTF-32 begins as that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Windows-1252 has characters below it, which are control codes in ISO 8859-1.
_FIRST_OF_LATIN_1 = 0xA0


def _advise_conversion(path: InputFile, encoding: str) -> str:
    called = {"ISO-8859-1": "Latin-1 (ISO-8859-1) or a similar encoding"}.get(encoding, encoding)
    fault = f"{path} is not in UTF-8, but in {called}."
    if is_compressed(path):
        command = f"iconv -f {encoding} -t UTF-8"
        return f"{fault} Decompress it, convert it with `{command}`, and compress it again."
    name = str(path)
    converted = f"{name.removesuffix(path.suffix)}.utf8{path.suffix}"
    return f"{fault} Convert it: iconv -f {encoding} -t UTF-8 {quote(name)} > {quote(converted)}"


def _read_lines(path: InputFile, file: Iterator[T]) -> Iterator[T]:
    try:
        yield from file
    except (OSError, zlib.error) as error:
        raise InvalidCorpus(f"{path} cannot be read to its end: {_first_line(error)}.") from error
    except EOFError as error:
        raise InvalidCorpus(f"{path} cannot be read to its end: Truncated gzip file.") from error
