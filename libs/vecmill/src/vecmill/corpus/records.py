"""The rows of an input, and the parts that they are embedded in. Pure.

A part is closed by its number of texts or of characters, whichever comes first, so that memory is bounded
whatever the texts are like. The same records always make the same parts.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

PART_TEXTS = 256
PART_CHARACTERS = 1_000_000

NO_CHARACTER = "half of a surrogate pair or a byte that is not UTF-8"


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the input: `place` is its line or number, from 1, and `values` what stands in its columns.

    `problem` says what is wrong with a row that could not be read; it has no values.
    """

    place: int
    values: tuple[Any, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Some records in a row, the first value of each its text. `number` counts parts, from 0."""

    number: int
    records: Sequence[Record]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def texts(self) -> list[str]:
        """The texts, in order."""
        return [record.values[0] for record in self.records]

    def without(self, places: Sequence[int]) -> "Part":
        """The part without the records at some places."""
        out = frozenset(places)
        return Part(self.number, [record for at, record in enumerate(self.records) if at not in out])

    def column(self, index: int) -> list[Any]:
        """The values of one column, in order; column 0 is the texts."""
        return [record.values[index] for record in self.records]


def cut_parts(records: Iterable[Record]) -> Iterator[Part]:
    """All records, in parts."""
    held: list[Record] = []
    characters = number = 0
    for record in records:
        held.append(record)
        characters += len(record.values[0])
        if len(held) >= PART_TEXTS or characters >= PART_CHARACTERS:
            yield Part(number, held)
            held, characters, number = [], 0, number + 1
    if held:
        yield Part(number, held)


def problem_of(value: Any) -> str | None:
    """What keeps a value from being embedded, if anything does."""
    if value is None:
        return "has no text"
    if not isinstance(value, str):
        return f"has {_KINDS.get(type(value), 'something else')} where its text should be"
    return None if is_writable(value) else f"has {NO_CHARACTER} in its text"


def is_writable(value: Any) -> bool:
    """Whether all text in a value can be written as UTF-8."""
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
