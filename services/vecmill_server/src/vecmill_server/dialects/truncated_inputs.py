"""How a response tells which inputs were cut, and by how many tokens: a header, and a field of JSON objects.

All dialects tell it in the same way, and their clients ignore headers and fields of objects that they do not
know. A response that is a list has no place for the field.
"""

from collections.abc import Sequence
from typing import Any

from vecmill.results import Result, Truncated
from vecmill.values.aliases import JsonValue
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_schema import Component, Schema, an_object, described

FIELD = "truncated"
# More of them would make the header larger than some proxies allow.
MOST_IN_HEADER = 64
_MORE = "..."

_TRUNCATED = Component(
    "Truncated",
    an_object(
        ("index", "tokens"),
        {
            "index": described(int, "The position of the input in the request."),
            "tokens": described(int, "The number of its tokens that were cut off."),
            "at_least": described(bool, "True if more tokens were cut off than were counted; else absent."),
        },
    ),
)
_NOTE = "The inputs that were cut. Absent if there are none."


def with_truncated(properties: dict[str, Any]) -> Schema:
    """Return the schema of a response with these properties, and with the inputs that were cut."""
    return an_object(tuple(properties), {**properties, FIELD: described([_TRUNCATED], _NOTE)})


def add_truncated(document: JsonValue, result: Result) -> JsonValue:
    """Return the document of a response, with the inputs that were cut if it is an object."""
    if not isinstance(document, dict):
        return document
    return {**document, FIELD: [_write(each) for each in result.truncated]}


def _write(each: Truncated) -> dict[str, Any]:
    written: dict[str, Any] = {"index": each.index, "tokens": each.token_count}
    return written if each.is_exact else {**written, "at_least": True}


def truncated_headers(truncated: Sequence[Truncated]) -> HeaderList:
    """Return the headers with the number of inputs that were cut, and with the first of them.

    `0=34,7>=120` says that input 0 lost 34 tokens and input 7 at least 120.
    """
    if not truncated:
        return []
    entries = [f"{each.index}{'=' if each.is_exact else '>='}{each.token_count}" for each in truncated]
    if len(entries) > MOST_IN_HEADER:
        entries[MOST_IN_HEADER:] = [_MORE]
    return [
        (b"x-truncated-inputs", b"%d" % len(truncated)),
        (b"x-truncated", ",".join(entries).encode("ascii")),
    ]
