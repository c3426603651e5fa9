"""The encoding and decoding of JSON bodies, the only module that imports orjson."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson

from vecmill.values.aliases import JsonValue
from vecmill_server.errors import InvalidJson

# Decoding or encoding more than this in one call would block the event loop for other requests.
LARGE_BODY_BYTES = 256 * 1024
LARGE_INPUT_COUNT = 64

T = TypeVar("T")


async def run_off_loop(is_large: bool, function: Callable[[], T]) -> T:
    """Return `function()`, called in another thread if `is_large`.

    A small call takes less time than the switch to a thread.
    """
    return await asyncio.to_thread(function) if is_large else function()


def encode_json(value: JsonValue) -> bytes:
    """Encode `value` as JSON. NumPy arrays must be C-contiguous and finite. Any sequence becomes a list."""
    return orjson.dumps(value, default=list, option=orjson.OPT_SERIALIZE_NUMPY)


def decode_object(body: bytes) -> Mapping[str, Any]:
    """Decode the JSON object in `body`. Raises `InvalidJson`."""
    if not body:
        raise InvalidJson("The body is empty. Send a JSON object.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # Only the message and the position: the error's attribute `doc` is the body itself.
        raise InvalidJson(f"The body is not valid JSON: {error.msg} at position {error.pos}.") from None
    if not isinstance(value, dict):
        raise InvalidJson("The body must be a JSON object.")
    return value


def kind_of(value: JsonValue) -> str:
    """Return the JSON name of the type of a value, with an article."""
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "this number",
        float: "a fraction or a number that is too large",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]
