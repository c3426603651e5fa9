"""The rows of an input that are embedded: their problems, and their division into parts.

An invalid row, such as a line that is not JSON, is a record with a problem. A part has a maximum number of
texts or pictures, of characters and of bytes of pictures in its rows, so that memory is bounded. The same
records always make the same parts.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.values.picture import Picture

PART_TEXTS = 256
PART_CHARACTERS = 1_000_000
# The bytes of pictures that count as a character: pipelines hold several parts.
BYTES_A_CHARACTER = 8

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
    """Consecutive records, each with its text or picture as the first value.

    `number` is the part's number, from 0.
    """

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


def cut_parts(records: Iterable[Record], texts: int | None = None) -> Iterator[InputPart]:
    """Divide all records into parts of at most so many texts, by default `PART_TEXTS`."""
    most = texts or PART_TEXTS
    held: list[Record] = []
    characters = number = 0
    for record in records:
        held.append(record)
        characters += count_characters(record.values[0])
        if len(held) >= most or characters >= PART_CHARACTERS:
            yield InputPart(number, held)
            held, characters, number = [], 0, number + 1
    if held:
        yield InputPart(number, held)


def count_characters(value: Any) -> int:
    """Return what the first value of a row counts for. A file that is read later counts for nothing."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):  # of a data set of Hugging Face
        value = value.get("bytes")
    return len(value) // BYTES_A_CHARACTER if isinstance(value, bytes | Picture) else 0


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
