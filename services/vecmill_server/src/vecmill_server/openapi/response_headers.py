"""The response headers in the OpenAPI document."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from vecmill_server.base.error_responses import LONGEST_RETRY_S
from vecmill_server.base.json_schema import COUNT, NUMBER, STRING, Schema

_ON_ALL = ("x-request-id", "request-id")
_RETRY = ("retry-after", "retry-after-ms")
_BY_STATUS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "409": ("x-should-retry",),
        "424": (*_RETRY, "x-should-retry"),
        "429": _RETRY,
        "500": (*_RETRY, "x-should-retry"),
        "503": _RETRY,
    }
)

_HEADERS: Mapping[str, tuple[Schema, str]] = MappingProxyType(
    {
        "x-request-id": (STRING, "The id of this request in the log."),
        "request-id": (STRING, "The same id."),
        "retry-after": (
            {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S},
            "Seconds until another attempt may succeed.",
        ),
        "retry-after-ms": (
            {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S * 1000},
            "`retry-after` in milliseconds.",
        ),
        "x-should-retry": (
            {"type": "string", "enum": ["false"]},
            "Present if another attempt would fail in the same way.",
        ),
        "x-compute-time": (
            NUMBER,
            "Seconds in the engine; on TEI's routes and /embeddings, milliseconds of the request.",
        ),
        "server-timing": (STRING, "Milliseconds of tokenize, queue, inference and total."),
        "x-truncated-inputs": (
            {"type": "integer", "minimum": 1},
            "The number of inputs that were longer than their limit and were cut; absent if none was.",
        ),
        "x-unknown-fields": (
            STRING,
            "Unknown fields of the body: up to eight names, and the number of the others after a plus sign.",
        ),
        "x-compute-type": (STRING, "The device, such as cpu or cuda:0."),
        "x-compute-characters": (COUNT, "Characters of the texts."),
        "x-compute-tokens": (COUNT, "Tokens of the texts."),
        "x-total-time": (COUNT, "Milliseconds of the request."),
        "x-tokenization-time": (COUNT, "Milliseconds of tokenization."),
        "x-queue-time": (COUNT, "Milliseconds in the queue."),
        "x-inference-time": (COUNT, "Milliseconds in the engine."),
        "content-disposition": (STRING, "The name of the file."),
        "accept-ranges": (STRING, "bytes"),
        "content-range": (STRING, "The part of the file that is sent, or the size of the file in bytes."),
        "last-modified": (STRING, "The time at which the file was written."),
        "etag": (STRING, "A tag that changes with the file."),
        "content-security-policy": (STRING, "Allows the page to load only from this server."),
        "cache-control": (STRING, "The time for which the response may be cached."),
        "referrer-policy": (STRING, "no-referrer"),
        "x-content-type-options": (STRING, "nosniff"),
    }
)


def describe_headers() -> dict[str, Any]:
    """Return the description of every response header, by its name."""
    return {name: {"schema": schema, "description": text} for name, (schema, text) in _HEADERS.items()}


def headers(names: Iterable[str]) -> dict[str, Any]:
    """Return references to the headers of these names."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def with_headers(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation with the headers of all responses, and those of each status."""
    responses = {
        status: {
            **response,
            "headers": {**headers((*_ON_ALL, *_BY_STATUS.get(status, ()))), **response.get("headers", {})},
        }
        for status, response in operation["responses"].items()
    }
    return {**operation, "responses": responses}
