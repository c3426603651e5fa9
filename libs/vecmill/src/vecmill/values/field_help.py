"""Help texts of the fields of dataclasses: for `help()` in Python, and for options of commands.

A field's `help` metadata is its help text.
"""

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_WIDTH = 96


def setting(default: Any, help_text: str) -> Any:
    """Return a dataclass field with the help text that explains it."""
    return field(default=default, metadata={"help": help_text})


def explained(kind: type[T]) -> type[T]:
    """Add the help texts and the defaults of the fields to the docstring of a dataclass."""
    if kind.__doc__ is not None:  # as with `python -OO`
        kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__), "", *_explain(kind)])
    return kind


def _explain(kind: Any) -> Iterator[str]:
    for each in sorted(fields(kind), key=lambda each: bool(each.kw_only)):  # those of all requests last
        if "help" in each.metadata:
            text = f"- `{each.name}`{_show_default(each)}: {each.metadata['help']}"
            yield from textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _show_default(each: "Field[Any]") -> str:
    if each.default is not MISSING:
        return f" (default {_show(each.default)})"
    made = getattr(each.default_factory, "__name__", "")
    return f" (default {made}())" if made else ""


def _show(default: object) -> str:
    if isinstance(default, tuple):
        return ", ".join(map(_show, default))
    if type(default) is int:
        return f"{default:_}"
    return f"{type(default).__name__}()" if is_dataclass(default) else str(default)
