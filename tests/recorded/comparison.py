"""Compares an answer with its recording, and says exactly where they differ."""

from collections.abc import Iterator
from typing import Any


def differences(recorded: Any, found: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Each place at which two JSON values differ, and how; floats by more than `tolerance`."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in sorted(recorded.keys() | found.keys()):
            inner = f"{place} > {key}" if place else key
            if key not in found:
                yield f"{inner}: is gone; recorded was {_show(recorded[key])}"
            elif key not in recorded:
                yield f"{inner}: is new: {_show(found[key])}"
            else:
                yield from differences(recorded[key], found[key], tolerance, inner)
    elif isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            yield f"{place}: {len(found)} items, recorded were {len(recorded)}: {_show(found)}"
        for index, (before, after) in enumerate(zip(recorded, found, strict=False)):
            yield from differences(before, after, tolerance, f"{place} > {index}")
    elif not _is_same(recorded, found, tolerance):
        yield f"{place}: {_show(found)}, recorded was {_show(recorded)}"


def _is_same(recorded: Any, found: Any, tolerance: float) -> bool:
    if type(recorded) is not type(found):  # 1 and 1.0 and true are not the same to clients
        return False
    if isinstance(recorded, float):
        return bool(recorded == found or abs(recorded - found) <= tolerance)
    return bool(recorded == found)


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:200]}..."
