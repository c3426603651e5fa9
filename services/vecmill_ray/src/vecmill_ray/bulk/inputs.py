"""The inputs of a run, and the reading of a range of the rows of one input.

The readers are those of `vecmill embed`. An input is a file of JSON lines, CSV or Parquet, or the result of a
query to a database (`database_input`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from vecmill.bulk.input_files import is_compressed
from vecmill.bulk.picture_inputs import PictureFolder
from vecmill.bulk.records import Record
from vecmill.bulk.sources import (
    JsonLines,
    Parquet,
    Source,
    count_batch_rows,
    parse_line,
    read_object,
    refuse_duplicates,
    source_of,
)
from vecmill.errors import InvalidCorpus
from vecmill.values.aliases import JsonValue
from vecmill_ray.bulk.blocks import InputSpan, Position, Row
from vecmill_ray.bulk.database_input import DatabaseInput, is_database
from vecmill_ray.bulk.storage import SharedStorage, StoredFile
from vecmill_ray.bulk.stored_pictures import StoredPictures

# The bytes of a file of JSON lines, and the row groups of a Parquet file, that one task scans.
SPAN_BYTES = 64 * 2**20
SPAN_GROUPS = 16


@dataclass(frozen=True, slots=True)
class InputAddress:
    """An input as the command line gives it. `query` and `key_column` are for a database."""

    address: str
    query: str | None = None
    key_column: str | None = None

    def open(self) -> list["BulkInput"]:
        """Return the inputs at this address, in order. Raises `SetupError`."""
        if self.query is not None or is_database(self.address):
            return [DatabaseInput(self.address, self.query, self.key_column)]
        files = SharedStorage(self.address).files()
        if not files:
            raise InvalidCorpus(f"The folder {SharedStorage(self.address).name} has no files.")
        return [FileInput(file) for file in files]


def open_inputs(address: InputAddress, identities: Sequence[JsonValue]) -> "list[BulkInput]":
    """Open the inputs. Raises `InvalidCorpus` if their identities are other than `identities`."""
    inputs = address.open()
    for found, identity in zip(inputs, identities, strict=False):
        if found.identity != identity:
            raise InvalidCorpus(f"{found.source.path} has changed since the start of the run.")
    if len(inputs) != len(identities):
        raise InvalidCorpus(
            f"The input has {len(inputs)} files, but had {len(identities)} at the start of the run."
        )
    return inputs


class FileInput:
    """A file of JSON lines, CSV or Parquet, whose rows can be read in ranges.

    `identity` changes when the file changes. `unit` is that of the places of rows, line or row. `source` has
    all rows, for the choice of columns.
    """

    def __init__(self, file: StoredFile) -> None:
        self.file = file
        self.is_local = file.filesystem.type_name == "local"
        self.source = source_of(file)
        self.unit = self.source.unit
        self.identity: JsonValue = [file.name, file.size, file.changed]

    def spans(self, index: int) -> list[InputSpan]:
        """Divide the file, which is the input number `index`, into spans for the scan.

        They are byte ranges of JSON lines, row groups of Parquet, or the whole file.
        """
        if self._has_byte_ranges:
            starts = range(0, self.file.size, SPAN_BYTES)
            return [InputSpan(index, start, min(start + SPAN_BYTES, self.file.size)) for start in starts]
        if isinstance(self.source, Parquet):
            return [InputSpan(index, *rows) for rows in _group_ranges(self.file)]
        return [InputSpan(index, 0, None)]

    def read(self, names: Sequence[str], start: Position, stop: Position, place: int) -> Iterator[Row]:
        """Return the rows of a range. `place` is the place of the first row.

        Raises `InvalidCorpus`, with an `OSError` as its cause if the storage failed.
        """
        assert isinstance(start, int)
        assert stop is None or isinstance(stop, int)
        if self._has_byte_ranges:
            return self._read_bytes(names, start, self.file.size if stop is None else stop, place)
        if isinstance(self.source, Parquet):
            return self._read_groups(names, start, stop, place)
        rows = islice(self.source.records(names), start, stop)
        return (Row(at, record.place, record) for at, record in enumerate(rows, start))

    def find_pictures(self) -> PictureFolder:
        """Return where the pictures are that rows name."""
        return self.source.find_pictures(None) if self.is_local else StoredPictures(self.file)

    @property
    def _has_byte_ranges(self) -> bool:
        return isinstance(self.source, JsonLines) and not is_compressed(self.file)

    def _read_bytes(self, names: Sequence[str], start: int, stop: int, place: int) -> Iterator[Row]:
        """Return the lines that begin in a range of bytes; an empty line has no record."""
        with _report_read_errors(self.file), self.file.open() as file:
            position = start
            if start:
                # A line that begins exactly at `start` belongs to this range.
                file.seek(start - 1)
                position += len(file.readline()) - 1
            lines = _iterate_lines(file, position, stop)
            for at, (offset, line) in enumerate(lines, place):
                record = None if line.isspace() else read_object(at, parse_line(line), names)
                yield Row(offset, at, record)

    def _read_groups(self, names: Sequence[str], start: int, stop: int | None, place: int) -> Iterator[Row]:
        """Return a range of the rows of a Parquet file; only the row groups in the range are read."""
        from pyarrow import parquet

        with (
            _report_read_errors(self.file),
            parquet.ParquetFile(self.file.open_arrow(), pre_buffer=False) as file,
        ):
            refuse_duplicates(self.file, file.schema_arrow.names, names)
            groups, first = _groups_in(file, start, stop)
            at = first
            size = count_batch_rows(file.metadata, names)
            for batch in file.iter_batches(size, row_groups=groups, columns=list(names)):
                values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
                for row in zip(*values, strict=True):
                    if stop is not None and at >= stop:
                        return
                    if at >= start:
                        where = place + at - start
                        yield Row(at, where, Record(where, row))
                    at += 1


@contextmanager
def _report_read_errors(file: StoredFile) -> Iterator[None]:
    """Raise `InvalidCorpus`, with the error as its cause, for an error of the storage in the block."""
    try:
        yield
    except UnicodeError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InvalidCorpus(f"{file} cannot be read: {reason}.") from error


def _iterate_lines(file: Any, position: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Return the lines that begin before `stop`, with their offsets; `file` is at `position`."""
    while position < stop:
        line = file.readline()
        if not line:
            return
        yield position, line
        position += len(line)


def _group_ranges(file: StoredFile) -> list[tuple[int, int]]:
    """Return the row ranges of every `SPAN_GROUPS` row groups of a Parquet file."""
    from pyarrow import parquet

    with _report_read_errors(file):
        counts = _group_rows(parquet.read_metadata(file.open_arrow()))
    edges = [0]
    for at in range(0, len(counts), SPAN_GROUPS):
        edges.append(edges[-1] + sum(counts[at : at + SPAN_GROUPS]))
    return list(pairwise(edges))


def _groups_in(file: Any, start: int, stop: int | None) -> tuple[list[int], int]:
    """Return the row groups that overlap a row range, and the first row of the first such group."""
    groups: list[int] = []
    first = at = 0
    for number, rows in enumerate(_group_rows(file.metadata)):
        if at + rows > start and (stop is None or at < stop):
            first = first if groups else at
            groups.append(number)
        at += rows
    return groups, first


def _group_rows(metadata: Any) -> list[int]:
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


BulkInput = FileInput | DatabaseInput


def arrow_types(source: Source, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the Arrow types of these columns, if the input has types."""
    return {name: kind for name, kind in source.arrow_types().items() if name in names}
