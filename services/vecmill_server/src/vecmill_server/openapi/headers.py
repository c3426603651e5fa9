"""Headers of answers: of every one, of those with a status, and of those that were computed."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from vecmill_server.openapi.vocabulary import NUMBER, STRING, Schema
from vecmill_server.problems import LONGEST_RETRY_S

_MILLISECONDS: Schema = {"type": "integer", "minimum": 0}
_COUNT: Schema = {"type": "integer", "minimum": 0}

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

OUR_TIMINGS = ("x-compute-time", "server-timing")
TEI_TIMINGS = (
    "x-compute-type",
    "x-compute-characters",
    "x-compute-tokens",
    "x-compute-time",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
)

_HEADERS: Mapping[str, tuple[Schema, str]] = MappingProxyType(
    {
        "x-request-id": (STRING, "The id under which the logs know this request."),
        "request-id": (STRING, "The same."),
        "retry-after": (
            {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S},
            "Seconds after which to come again, where that may help.",
        ),
        "retry-after-ms": (
            {"type": "integer", "minimum": 1, "maximum": LONGEST_RETRY_S * 1000},
            "The same in milliseconds.",
        ),
        "x-should-retry": ({"type": "string", "enum": ["false"]}, "There where the same would come again."),
        "x-compute-time": (NUMBER, "Seconds in the engine; in answers to TEI milliseconds of the request."),
        "server-timing": (STRING, "Milliseconds of tokenize, queue, inference and total."),
        "x-compute-type": (STRING, "The device, such as cpu or cuda:0."),
        "x-compute-characters": (_COUNT, "Characters of the texts."),
        "x-compute-tokens": (_COUNT, "Tokens that were read."),
        "x-total-time": (_MILLISECONDS, "Milliseconds of the request."),
        "x-tokenization-time": (_MILLISECONDS, "Milliseconds of making tokens."),
        "x-queue-time": (_MILLISECONDS, "Milliseconds of waiting."),
        "x-inference-time": (_MILLISECONDS, "Milliseconds in the engine."),
        "content-disposition": (STRING, "The name under which to keep the file."),
        "accept-ranges": (STRING, "bytes"),
        "content-range": (STRING, "Which part of the file this is, or how many bytes it has."),
        "last-modified": (STRING, "When the file was made."),
        "etag": (STRING, "Changes with the file."),
        "content-security-policy": (STRING, "The page may load what this server gives, and nothing else."),
        "cache-control": (STRING, "How long this may be kept."),
    }
)


def describe_headers() -> dict[str, Any]:
    """Every header of an answer, by its name."""
    return {name: {"schema": schema, "description": text} for name, (schema, text) in _HEADERS.items()}


def headers(names: Iterable[str]) -> dict[str, Any]:
    """What a response says of its headers."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def with_headers(operation: Mapping[str, Any]) -> dict[str, Any]:
    """The operation, with the headers that all answers have, and those that come with a status."""
    responses = {
        status: {
            **response,
            "headers": {**headers((*_ON_ALL, *_BY_STATUS.get(status, ()))), **response.get("headers", {})},
        }
        for status, response in operation["responses"].items()
    }
    return {**operation, "responses": responses}
