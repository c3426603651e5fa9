"""The request body that creates a batch, and the query parameters of lists."""

import re
from collections.abc import Mapping
from typing import Any

from vecmill.values.aliases import JsonValue
from vecmill_server.base.json_schema import OPTIONAL_STRING, STRING, nullable, word
from vecmill_server.batches.jsonl import ENDPOINTS
from vecmill_server.batches.objects import (
    MAX_METADATA,
    MAX_METADATA_NAME,
    MAX_METADATA_VALUE,
    METADATA,
    NewBatch,
    Page,
)
from vecmill_server.batches.uploads import AGE, check_age_s
from vecmill_server.dialects.fields import RequestBody, choice_of, invalid, optional, required, to_string

LONGEST_WINDOW_H = 14 * 24
# From 1h to LONGEST_WINDOW_H, which is 336. The empty string counts as absent.
_WINDOW_SCHEMA = "^(([1-9]|[1-9][0-9]|[12][0-9][0-9]|3[0-2][0-9]|33[0-6])h)?$"
_WINDOW = re.compile("([1-9][0-9]{0,3})h")


def _to_file_id(value: JsonValue, field: str) -> str:
    file_id = to_string(value, field)
    if not file_id:
        raise invalid(field, f"is required: {_FILE_WANTED}.")
    return file_id


def _to_window(value: JsonValue, field: str) -> tuple[str, int]:
    """Return a completion window, and its length in seconds."""
    window = to_string(value, field) or _DEFAULT_WINDOW
    found = _WINDOW.fullmatch(window)
    if found is None or int(found[1]) > LONGEST_WINDOW_H:
        raise invalid(field, f"must be hours, from `1h` to `{LONGEST_WINDOW_H}h`, such as `24h`.")
    return window, int(found[1]) * 3600


def _to_metadata(value: JsonValue, field: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_METADATA:
        raise invalid(field, f"must be an object of at most {MAX_METADATA} fields.")
    for name, text in value.items():
        if len(name) > MAX_METADATA_NAME or not isinstance(text, str) or len(text) > MAX_METADATA_VALUE:
            raise invalid(
                field,
                f"accepts names of at most {MAX_METADATA_NAME} characters, and strings of at most "
                f"{MAX_METADATA_VALUE}.",
            )
    return value


def _to_age_s(value: JsonValue, field: str) -> int:
    if not isinstance(value, dict):
        raise invalid(field, "must be an object.")
    return check_age_s(value.get("anchor"), value.get("seconds"), field)


_FILE_WANTED = "the id of a file that was uploaded for a batch"
_DEFAULT_WINDOW = "24h"


class BatchRequest(RequestBody):
    """The request body that creates a batch."""

    input_file_id = required(
        "input_file_id",
        {**STRING, "minLength": 1},
        _to_file_id,
        _FILE_WANTED,
        "A file that was uploaded for a batch.",
    )
    endpoint = required(
        "endpoint", word(*ENDPOINTS), choice_of(tuple(ENDPOINTS)), f"one of {', '.join(ENDPOINTS)}"
    )
    window = optional(
        ("completion_window",),
        {**OPTIONAL_STRING, "pattern": _WINDOW_SCHEMA},
        _to_window,
        "The completion window in hours, `24h` by default. Requests left at its end are not run.",
    ).otherwise((_DEFAULT_WINDOW, 24 * 3600))
    metadata = optional(("metadata",), METADATA, _to_metadata)
    output_expires_after_s = optional(
        ("output_expires_after",),
        nullable({"anchor": "created_at", "seconds": AGE}),
        _to_age_s,
    )

    def read(self) -> NewBatch:
        """Return the batch to create. Raises `InvalidRequest`."""
        input_file_id, endpoint = self.input_file_id, self.endpoint
        window, window_s = self.window
        return NewBatch(input_file_id, endpoint, window, window_s, self.metadata, self.output_expires_after_s)


def read_page(query: Mapping[str, Any], *, default: int, most: int) -> Page:
    """Read the requested page of a list. Raises `InvalidRequest`."""
    limit = query.get("limit") or str(default)
    if not limit.isascii() or not limit.isdigit() or len(limit) > 9 or not 1 <= int(limit) <= most:
        raise invalid("limit", f"must be a whole number from 1 to {most}.")
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise invalid("order", 'must be "asc" or "desc".')
    return Page(int(limit), query.get("after") or None, newest_first=order == "desc")
