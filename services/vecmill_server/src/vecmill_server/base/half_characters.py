"""The place of half a surrogate pair in a JSON body, such as an emoji that a client has cut in two.

Half a pair is no character, so the body is refused. The decoder tells the position in the body, and these
functions tell the field.
"""

import json
import re
from typing import Any

# A longer body is not read again: that would hold the interpreter for too long.
MOST_BYTES = 4 * 1024 * 1024
_HALF = re.compile("[\ud800-\udfff]")
# Other names might be anything, and are not repeated.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def find_half_character(body: bytes | bytearray) -> str | None:
    """Return the field of the first text of a JSON body with half a character, such as `input[1]`.

    Returns `None` if the field cannot be named.
    """
    if len(body) > MOST_BYTES:
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _find(document)


def _find(document: Any) -> str | None:
    waiting: list[tuple[str | None, Any]] = [("", document)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, str) and _HALF.search(value):
            return field
        if isinstance(value, list):
            waiting += [(_item(field, index), each) for index, each in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            waiting += [(_member(field, name), each) for name, each in reversed(value.items())]
    return None


def _item(field: str | None, index: int) -> str | None:
    return None if field is None else f"{field}[{index}]"


def _member(field: str | None, name: str) -> str | None:
    if field is None or not _NAME.fullmatch(name):
        return None
    return f"{field}.{name}" if field else name
