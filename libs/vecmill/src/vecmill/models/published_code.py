"""Finds the classes that a `config.json` names: in `architectures`, and as published code in `auto_map`.

The code itself is never read. A built-in graph that computes what a published class computes knows the class
by its name.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def list_code(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what `auto_map` names, as `module.Class`, without the repository before "--"."""
    entries = config.get("auto_map")
    values = entries.values() if isinstance(entries, Mapping) else [entries]
    return tuple(name.rpartition("--")[2] for value in values for name in _texts(value))


def find_settings_class(config: Mapping[str, Any]) -> str | None:
    """Return the name of the class of settings that `auto_map` names, without its module, if it does."""
    entries = config.get("auto_map")
    named = entries.get("AutoConfig") if isinstance(entries, Mapping) else None
    return named.rpartition(".")[2] if isinstance(named, str) else None


def names_class(classes: frozenset[str], name: str) -> bool:
    """Return whether `name`, which is `Class` or `module.Class`, is one of `classes`."""
    return name in classes or name.rpartition(".")[2] in classes


def names_any(classes: frozenset[str], config: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` names one of `classes`, in `architectures` or in `auto_map`."""
    return any(
        names_class(classes, name) for name in (*_texts(config.get("architectures")), *list_code(config))
    )


def _texts(value: object) -> Iterator[str]:
    """Yield a string, or the strings of a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item
