"""What clients ask of files and batches: the documents and the queries of their requests."""

import re
from collections.abc import Mapping
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill_server.batches.lines import ENDPOINTS
from vecmill_server.batches.records import BatchRequest, Page
from vecmill_server.batches.uploads import check_age_s
from vecmill_server.documents import read_string

MAX_METADATA = 16
MAX_METADATA_NAME = 64
MAX_METADATA_VALUE = 512
LONGEST_WINDOW_H = 14 * 24
_WINDOW = re.compile("([1-9][0-9]{0,3})h")


def read_batch_request(document: Mapping[str, Any]) -> BatchRequest:
    """A request for a batch. Raises `InvalidRequest`."""
    input_file_id = read_string(document, "input_file_id")
    if not input_file_id:
        raise InvalidRequest(
            "`input_file_id` is required: the id of a file that was uploaded for a batch.",
            field="input_file_id",
        )
    endpoint = read_string(document, "endpoint")
    if endpoint is None or endpoint not in ENDPOINTS:
        raise InvalidRequest(f"`endpoint` must be one of: {', '.join(ENDPOINTS)}.", field="endpoint")
    window, window_s = _read_window(document)
    return BatchRequest(
        input_file_id,
        endpoint,
        window,
        window_s,
        _read_metadata(document),
        _read_output_age_s(document),
    )


def _read_window(document: Mapping[str, Any]) -> tuple[str, int]:
    window = read_string(document, "completion_window") or "24h"
    found = _WINDOW.fullmatch(window)
    if found is None or int(found[1]) > LONGEST_WINDOW_H:
        raise InvalidRequest(
            f"`completion_window` must be hours, from `1h` to `{LONGEST_WINDOW_H}h`, such as `24h`.",
            field="completion_window",
        )
    return window, int(found[1]) * 3600


def _read_metadata(document: Mapping[str, Any]) -> dict[str, str] | None:
    metadata = document.get("metadata")
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or len(metadata) > MAX_METADATA:
        raise InvalidRequest(
            f"`metadata` must be an object of at most {MAX_METADATA} fields.", field="metadata"
        )
    for name, value in metadata.items():
        if len(name) > MAX_METADATA_NAME or not isinstance(value, str) or len(value) > MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"`metadata` takes names of at most {MAX_METADATA_NAME} characters, and strings of at most "
                f"{MAX_METADATA_VALUE}.",
                field="metadata",
            )
    return metadata


def _read_output_age_s(document: Mapping[str, Any]) -> int | None:
    value = document.get("output_expires_after")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest("`output_expires_after` must be an object.", field="output_expires_after")
    return check_age_s(value.get("anchor"), value.get("seconds"), "output_expires_after")


def read_page(query: Mapping[str, str], *, default: int, most: int) -> Page:
    """Which part of a list is asked for. Raises `InvalidRequest`."""
    limit = query.get("limit") or str(default)
    if not limit.isascii() or not limit.isdigit() or len(limit) > 9 or not 1 <= int(limit) <= most:
        raise InvalidRequest(f"`limit` must be a whole number from 1 to {most}.", field="limit")
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidRequest('`order` must be "asc" or "desc".', field="order")
    return Page(int(limit), query.get("after") or None, newest_first=order == "desc")
