"""The types of the fields of dataclasses, for values that no type checker may have seen."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# The types that values of an annotated type may have, and words for them. numpy's numbers are numbers.
_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    int: ((int, Integral), "a whole number"),
    float: ((float, int, Real), "a number"),
    str: ((str,), "a string"),
    Path: ((Path,), "a pathlib.Path"),
    NoneType: ((NoneType,), "None"),
}


@dataclass(frozen=True, slots=True)
class WrongField:
    """A field with a value of a type that it cannot have; `expected` are words for what it can have."""

    name: str
    value: object
    expected: str


@dataclass(frozen=True, slots=True)
class _Accepted:
    name: str
    types: tuple[type, ...]
    words: tuple[str, ...]

    def fits(self, value: object) -> bool:
        if type(value) in self.types:
            return True
        return isinstance(value, self.types) and not isinstance(value, bool)


def find_wrong_field(value: Any, passing: Container[str] = ()) -> WrongField | None:
    """Return the first wrong field of a dataclass, `None` if there is none.

    Fields that are `passing` are not looked at, nor is what is inside of tuples.
    """
    kind: Any = type(value)
    for accepted in _list_accepted(kind):
        found = getattr(value, accepted.name)
        if not accepted.fits(found) and accepted.name not in passing:
            return WrongField(accepted.name, found, ", or ".join(accepted.words))
    return None


@cache
def _list_accepted(kind: Any) -> tuple[_Accepted, ...]:
    hints = get_type_hints(kind)
    found = ((field.name, [*_read_types(hints[field.name])]) for field in fields(kind))
    return tuple(
        _Accepted(name, tuple(each for types, _ in read for each in types), tuple(dict.fromkeys(words)))
        for name, read in found
        if all(words := [word for _, word in read])  # others, such as functions, are not checked
    )


def _read_types(hint: Any) -> Iterator[tuple[tuple[type, ...], str]]:
    """Yield the accepted types of each part of an annotation, with no words if it is not known."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for part in get_args(hint):
            yield from _read_types(part)
    elif origin is Literal:
        yield (str,), f"one of {', '.join(get_args(hint))}"
    elif origin is tuple:
        yield (tuple, list), "a tuple"
    elif hint in _TYPES:
        yield _TYPES[hint]
    elif isinstance(hint, type) and issubclass(hint, StrEnum):  # its values are written as strings too
        yield (hint, str), f"one of {', '.join(hint)}"
    elif is_dataclass(hint) and isinstance(hint, type):
        yield (hint,), f"{'an' if hint.__name__[0] in 'AEIO' else 'a'} {hint.__name__}"
    else:
        yield (), ""
