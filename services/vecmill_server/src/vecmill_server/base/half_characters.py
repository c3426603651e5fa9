"""The place of half a surrogate pair in a JSON body, such as an emoji that a client has cut in two.

Half a pair is no character, so the body is refused. The decoder tells the position in the body, and these
functions tell the field.
"""

import json
import re
from typing import Any

# A longer body is not read again: that would hold the interpreter for too long.
MOST_BYTES = 1024 * 1024
_HALF = re.compile("[\ud800-\udfff]")
# Other names might be anything, and are not repeated.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_FIELD = 200

# The names and the indices that lead to a value.
_Place = tuple[str | int, ...]


def find_half_character(body: bytes | bytearray) -> str | None:
    """Return the field of the first text of a JSON body with half a character, such as `input[1]`.

    Returns `None` if the field cannot be named.
    """
    if len(body) > MOST_BYTES:
        return None
    try:
        place = _find(json.loads(body))
    except (ValueError, RecursionError):
        return None
    return None if place is None else _name(place)


def _find(value: Any) -> _Place | None:
    if isinstance(value, str):
        return () if _HALF.search(value) else None
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, str | list | dict):
            found = _find(each)
            if found is not None:
                return (key, *found)
    return None


def _name(place: _Place) -> str | None:
    field = ""
    for key in place:
        if isinstance(key, int):
            field += f"[{key}]"
        elif _NAME.fullmatch(key):
            field += f".{key}" if field else key
        else:
            return None
    return field if 0 < len(field) <= _LONGEST_FIELD else None
