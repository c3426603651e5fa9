"""What an input holds: which columns are read, how many rows there are, what their values are like.

The whole input is read once before anything is embedded, exactly as it will be read for that. So a row that
stands in the way is named in the first seconds and not in the last hour, and the time left can be told.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from vecmill.corpus.progress import show_steps
from vecmill.corpus.records import NO_CHARACTER, Record, is_writable, problem_of
from vecmill.corpus.sources import Source
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.models.fingerprint import hash_file

TEXT_COLUMN = "text"
ID_COLUMN = "id"


class Kind(StrEnum):
    """What the values of a column are, none being something that all may be."""

    NOTHING = "nothing"
    BOOLEAN = "boolean"
    INTEGER = "integer"  # that a float can be, too
    LONG = "long"  # of 64 bits
    FLOAT = "float"
    TEXT = "text"
    MIXED = "mixed"  # written as text: what is none, as JSON

    def merge(self, other: "Kind") -> "Kind":
        """What values of either are."""
        if other in (self, Kind.NOTHING):
            return self
        if self is Kind.NOTHING:
            return other
        return _MERGED.get(frozenset((self, other)), Kind.MIXED)


_MERGED = MappingProxyType(
    {
        frozenset((Kind.INTEGER, Kind.LONG)): Kind.LONG,
        frozenset((Kind.INTEGER, Kind.FLOAT)): Kind.FLOAT,
    }
)


def kind_of(value: Any) -> Kind:
    """What one value is."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**53) <= value <= 2**53:
            return Kind.INTEGER
        return Kind.LONG if -(2**63) <= value < 2**63 else Kind.MIXED
    kinds = {type(None): Kind.NOTHING, bool: Kind.BOOLEAN, float: Kind.FLOAT, str: Kind.TEXT}
    return kinds.get(type(value), Kind.MIXED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person says of the columns; `None` leaves it to us. `skips_invalid` leaves out broken rows."""

    text: str | None = None
    identity: str | None = None
    copies: tuple[str, ...] = ()
    skips_invalid: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to read: that of the texts first, then those that are copied, the id's before others."""

    text: str
    copies: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order of a record's values."""
        return (self.text, *self.copies)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found: so many `rows` to embed and others `skipped`, and the `kinds` of the copied columns."""

    columns: Columns
    rows: int
    skipped: int
    kinds: Mapping[str, Kind]
    sha256: str


def survey_source(source: Source, wanted: Wanted) -> Survey:
    """Read all of `source`. Raises `InvalidConfig` for its columns, `InvalidCorpus` for its rows."""
    columns = choose_columns(source, wanted)
    sha256 = hash_file(source.path)
    kinds = dict.fromkeys(columns.copies, Kind.NOTHING)
    rows = read = 0
    for record in show_steps(_records(source, columns), "Reading"):
        read += 1
        if record.problem is not None:
            if not wanted.skips_invalid:
                raise InvalidCorpus(_describe(source, record))
            continue
        rows += 1
        for name, value in zip(columns.copies, record.values[1:], strict=True):
            kinds[name] = kinds[name].merge(kind_of(value))
    if not rows:
        raise InvalidCorpus(f"{source.path} has no row with a text in the column {columns.text!r}.")
    _require_values(source, wanted, kinds)
    return Survey(columns, rows, read - rows, kinds, sha256)


def valid_records(source: Source, columns: Columns) -> Iterator[Record]:
    """The rows of `source` that can be embedded, in order."""
    return (record for record in _records(source, columns) if record.problem is None)


def choose_columns(source: Source, wanted: Wanted) -> Columns:
    """Which columns to read. Raises `InvalidConfig` for one that is not there, or where it is not clear."""
    found = source.columns()
    if source.is_closed and not found:
        raise InvalidCorpus(f"{source.path} is empty: not even columns are named in it.")
    for option, name in (
        ("--text-column", wanted.text),
        ("--id-column", wanted.identity),
        *(("--copy-column", name) for name in wanted.copies),
    ):
        if name is not None and source.is_closed and name not in found:
            raise InvalidConfig(f"{option} is {name!r}, but the columns of {source.path} are {_list(found)}.")
    text = wanted.text or _find_text(source, found, wanted)
    if source.is_closed and not found[text]:
        raise InvalidConfig(
            f"The column {text!r} of {source.path} holds no texts. Name another: --text-column."
        )
    identity = wanted.identity
    if identity is None and ID_COLUMN in found and text != ID_COLUMN:
        identity = ID_COLUMN
    copies = dict.fromkeys((*(() if identity is None else (identity,)), *wanted.copies))
    return Columns(text, tuple(copies))


def _find_text(source: Source, found: Mapping[str, bool], wanted: Wanted) -> str:
    # Without any column there is no row to begin with, and what stands there instead will be said.
    if TEXT_COLUMN in found or not found:
        return TEXT_COLUMN
    others = (wanted.identity or ID_COLUMN, *wanted.copies)
    texts = [name for name, is_text in found.items() if is_text and name not in others]
    if len(texts) != 1:
        raise InvalidConfig(
            f"Which column of {source.path} holds the texts? It has {_list(found)}. Name it: --text-column."
        )
    return texts[0]


def _records(source: Source, columns: Columns) -> Iterator[Record]:
    """All rows, with what is wrong with their texts."""
    for record in source.records(columns.names):
        problem = record.problem or problem_of(record.values[0]) or _problem_of_copies(record, columns)
        yield record if problem is None else Record(record.place, problem=problem)


def _problem_of_copies(record: Record, columns: Columns) -> str | None:
    """What keeps a row from being written beside its embedding, if anything does."""
    for name, value in zip(columns.copies, record.values[1:], strict=True):
        if not is_writable(value):
            return f"has {NO_CHARACTER} in the column {name!r}"
    return None


def _require_values(source: Source, wanted: Wanted, kinds: Mapping[str, Kind]) -> None:
    """Raise `InvalidConfig` for a column that was asked for and stands in no row."""
    if source.is_closed:
        return
    for name in (wanted.identity, *wanted.copies):
        if name is not None and kinds[name] is Kind.NOTHING:
            raise InvalidConfig(f"No row of {source.path} has anything in the column {name!r}.")


def _describe(source: Source, record: Record) -> str:
    return (
        f"{source.path}: {source.unit} {record.place} {record.problem}. Mend it, or leave out such rows with "
        "--skip-invalid."
    )


def _list(names: Mapping[str, bool]) -> str:
    return ", ".join(map(repr, names)) or "none"
