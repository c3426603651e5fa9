"""The scan of an input before it is embedded: columns to read, number of rows, types of values.

The scan reads the whole input, like the later run. So an invalid row is reported at the start and not after
hours, and the remaining time can be estimated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from vecmill.bulk.picture_inputs import FilesDigest, PictureFolder, read_cell
from vecmill.bulk.records import NO_CHARACTER, NOT_UTF8, Record, find_problem, is_writable
from vecmill.bulk.sources import Source
from vecmill.errors import InvalidConfig, InvalidCorpus

SHOWN_ROWS = 5  # that are named when they are left out
TEXT_COLUMN = "text"
ID_COLUMN = "id"


class ColumnType(StrEnum):
    """The type of the values of a column; each type allows missing values."""

    NOTHING = "nothing"
    BOOLEAN = "boolean"
    INTEGER = "integer"  # a float can hold the value
    LONG = "long"  # 64 bits
    FLOAT = "float"
    TEXT = "text"
    MIXED = "mixed"  # written as text; values that are not text as JSON

    def merge(self, other: "ColumnType") -> "ColumnType":
        """Return the type of a column with values of both types."""
        if other in (self, ColumnType.NOTHING):
            return self
        if self is ColumnType.NOTHING:
            return other
        return _MERGED.get(frozenset((self, other)), ColumnType.MIXED)


_MERGED = {
    frozenset((ColumnType.INTEGER, ColumnType.LONG)): ColumnType.LONG,
    frozenset((ColumnType.INTEGER, ColumnType.FLOAT)): ColumnType.FLOAT,
}


def type_of(value: Any) -> ColumnType:
    """Return the type of one value."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**53) <= value <= 2**53:
            return ColumnType.INTEGER
        return ColumnType.LONG if -(2**63) <= value < 2**63 else ColumnType.MIXED
    column_types = {
        type(None): ColumnType.NOTHING,
        bool: ColumnType.BOOLEAN,
        float: ColumnType.FLOAT,
        str: ColumnType.TEXT,
    }
    return column_types.get(type(value), ColumnType.MIXED)


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The column options of the command; `None` means the default. `skips_invalid`: skip invalid rows.

    `picture_folder` is the folder that the paths of pictures are relative to.
    """

    text_column: str | None = None
    id_column: str | None = None
    copied_columns: tuple[str, ...] = ()
    skips_invalid: bool = False
    picture_column: str | None = None
    picture_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to read: the column of the texts, and the columns to copy, the id column first.

    With `has_pictures` the column `text` has pictures. `picture_folder` is that of `ColumnOptions`.
    """

    text: str
    copies: tuple[str, ...]
    has_pictures: bool = False
    picture_folder: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, in the order of a record's values."""
        return (self.text, *self.copies)


@dataclass(frozen=True, slots=True)
class InputScan:
    """The result of a scan: `rows` rows to embed, `skipped` invalid rows, the types of the copied columns.

    `files` is the digest of the files that the rows name, see `FilesDigest`.
    """

    columns: Columns
    rows: int
    skipped: int
    column_types: Mapping[str, ColumnType]
    sha256: str
    files: str | None = None


def scan_source(
    source: Source,
    options: ColumnOptions,
    *,
    tell: Callable[[str], object],
    watch: Callable[[Iterable[Record]], Iterable[Record]] = iter,
) -> InputScan:
    """Read all of `source`; `tell` is called with a line about rows that are left out.

    All rows pass through `watch`, which may show how many were read. Raises `InvalidConfig` for wrong
    columns, `InvalidCorpus` for invalid rows.
    """
    columns = choose_columns(source, options)
    sha256 = source.sha256()
    files = FilesDigest()
    column_types = dict.fromkeys(columns.copies, ColumnType.NOTHING)
    rows = read = 0
    for record in watch(checked_records(source, columns)):
        read += 1
        if record.problem is not None:
            if not options.skips_invalid:
                raise InvalidCorpus(describe_problem(source, record))
            if read - rows <= SHOWN_ROWS:
                tell(f"Left out: {source.unit} {record.place} {record.problem}.")
            continue
        rows += 1
        files.add(record)
        merge_types(column_types, columns, record)
    if (more := read - rows - SHOWN_ROWS) > 0:
        tell(f"Left out: {more:,} more.")
    if not rows:
        raise InvalidCorpus(describe_absence(str(source.path), columns))
    require_values(source, options, column_types)
    return InputScan(columns, rows, read - rows, column_types, sha256, files.result())


def has_changed(source: Source, scan: InputScan) -> bool:
    """Return whether the input, or a file that its rows name, is another one than in its scan."""
    if source.sha256() != scan.sha256:
        return True
    if scan.files is None:
        return False
    files = FilesDigest()
    for record in valid_records(source, scan.columns):
        files.add(record)
    return files.result() != scan.files


def describe_absence(name: str, columns: Columns) -> str:
    """Return the error message for an input without a valid row."""
    what = "picture" if columns.has_pictures else "text"
    return f"{name} has no row with a {what} in the column {columns.text!r}."


def merge_types(column_types: dict[str, ColumnType], columns: Columns, record: Record) -> None:
    """Merge the types of the copied values of a valid row into `column_types`."""
    for name, value in zip(columns.copies, record.values[1:], strict=True):
        column_types[name] = column_types[name].merge(type_of(value))


def valid_records(source: Source, columns: Columns) -> Iterator[Record]:
    """Return the rows of `source` that can be embedded, in input order."""
    return (record for record in checked_records(source, columns) if record.problem is None)


def choose_columns(source: Source, options: ColumnOptions) -> Columns:
    """Choose the columns to read.

    Raises `InvalidConfig` for a missing column or an unclear text column, `InvalidCorpus` for an empty file.
    """
    found = source.columns()
    if source.is_closed and not found:
        raise InvalidCorpus(f"{source.path} is empty: it has no line with column names.")
    for option, name in (
        ("--text-column", options.text_column),
        ("--picture-column", options.picture_column),
        ("--id-column", options.id_column),
        *(("--copy-column", name) for name in options.copied_columns),
    ):
        if name is not None and source.is_closed and name not in found:
            near = get_close_matches(name, found, 1)
            raise InvalidConfig(
                f"{option} is {name!r}, but the columns of {source.path} are {_list(found)}."
                + (f" Did you mean {near[0]!r}?" if near else "")
            )
    has_pictures = source.has_pictures or options.picture_column is not None
    if has_pictures and options.text_column is not None:
        raise InvalidConfig("--text-column is for texts, and this input has pictures. Remove it.")
    if not has_pictures and options.picture_folder is not None:
        raise InvalidConfig("--picture-folder has no effect without --picture-column.")
    text = (
        options.picture_column or next(iter(found))
        if has_pictures
        else options.text_column or _find_text(source, found, options)
    )
    if source.is_closed and not has_pictures and not found[text]:
        raise InvalidConfig(
            f"The column {text!r} of {source.path} holds no strings. Choose another column "
            "with --text-column."
        )
    id_column = options.id_column
    if id_column is None and ID_COLUMN in found and (source.has_pictures or text != ID_COLUMN):
        id_column = ID_COLUMN
    copies = dict.fromkeys((*(() if id_column is None else (id_column,)), *options.copied_columns))
    return Columns(text, tuple(copies), has_pictures, options.picture_folder if has_pictures else None)


def _find_text(source: Source, found: Mapping[str, bool], options: ColumnOptions) -> str:
    # Without columns there are no rows, and the scan reports this.
    if TEXT_COLUMN in found or not found:
        return TEXT_COLUMN
    others = (options.id_column or ID_COLUMN, *options.copied_columns)
    texts = [name for name, is_text in found.items() if is_text and name not in others]
    if len(texts) != 1:
        raise InvalidConfig(
            f"The text column of {source.path} is not clear. Choose one of {_list(found)} with --text-column."
        )
    return texts[0]


def checked_records(source: Source, columns: Columns) -> Iterator[Record]:
    """Return all rows, with the problems of their texts and copied values."""
    folder = source.find_pictures(columns.picture_folder) if columns.has_pictures else None
    return (check_record(record, columns, folder) for record in source.records(columns.names))


def check_record(record: Record, columns: Columns, folder: PictureFolder | None = None) -> Record:
    """Return the row, or a row with a problem if its text or a copied value is invalid.

    With a `folder`, the first value is a picture: bytes, or a path in this folder. In the result it is one of
    `EmbedInput`.
    """
    if folder is not None:
        record = read_cell(record, folder)
    problem = record.problem or (None if folder else find_problem(record.values[0]))
    problem = problem or _problem_of_copies(record, columns)
    return record if problem is None else Record(record.place, problem=problem)


def _problem_of_copies(record: Record, columns: Columns) -> str | None:
    """Return why the copied values of a row cannot be written, `None` if they can."""
    for name, value in zip(columns.copies, record.values[1:], strict=True):
        if not is_writable(value):
            return f"has {NO_CHARACTER} in the column {name!r}"
    return None


def require_values(source: Source, options: ColumnOptions, column_types: Mapping[str, ColumnType]) -> None:
    """Raise `InvalidConfig` for a requested column without a value in any row."""
    if source.is_closed:
        return
    for name in (options.id_column, *options.copied_columns):
        if name is not None and column_types[name] is ColumnType.NOTHING:
            raise InvalidConfig(f"No row of {source.path} has a value in the column {name!r}.")


def describe_problem(source: Source, record: Record) -> str:
    """Return the error message for an invalid row, or for a file in another encoding."""
    problem = record.problem or ""
    other = source.find_other_encoding() if problem == NOT_UTF8 or NO_CHARACTER in problem else None
    return other or (
        f"{source.path}: {source.unit} {record.place} {record.problem}. Correct the {source.unit}, or skip "
        "such rows with --skip-invalid."
    )


def _list(names: Mapping[str, bool]) -> str:
    return ", ".join(map(repr, names)) or "none"
