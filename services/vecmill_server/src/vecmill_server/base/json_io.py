"""The encoding and decoding of JSON bodies, the only module that imports orjson.

orjson holds the interpreter lock during a call, so a thread alone does not keep the event loop free. Large
documents are therefore limited (`json_measure`), encoded in pieces, and processed one at a time.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import orjson
from starlette.responses import Response

from vecmill.values.aliases import JsonValue
from vecmill.values.garbage import no_garbage_collection
from vecmill_server.base.errors import InvalidJson
from vecmill_server.base.half_characters import find_half_character

# Decoding or encoding more than this in one call would block the event loop for other requests.
LARGE_BODY_BYTES = 64 * 1024
LARGE_INPUT_COUNT = 64

# The items of a long list that are encoded in one call: 16 embeddings of 1,024 numbers take 0.5 ms.
PIECE_ITEMS = 16

T = TypeVar("T")


class LargeJson:
    """The work on large documents: one at a time, in a thread.

    Several threads that hold the interpreter lock in turn would keep the event loop waiting for all of them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, is_large: bool, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread if `is_large`.

        A small call takes less time than the switch to a thread.
        """
        if not is_large:
            return function()
        async with self._lock:
            return await asyncio.to_thread(_call_uncollected, function)


def _call_uncollected(function: Callable[[], T]) -> T:
    """Return `function()` without garbage collections.

    A document has no cycles, and collections while its objects are made take most of the time.
    """
    with no_garbage_collection():
        return function()


async def run_off_loop(is_large: bool, function: Callable[[], T]) -> T:
    """Return `function()`, called in another thread if `is_large`.

    A small call takes less time than the switch to a thread.
    """
    return await asyncio.to_thread(function) if is_large else function()


def encode_json(value: JsonValue) -> bytes:
    """Encode `value` as JSON. NumPy arrays must be C-contiguous and finite. Any sequence becomes a list."""
    return orjson.dumps(value, default=list, option=orjson.OPT_SERIALIZE_NUMPY)


def json_response(value: JsonValue, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response whose body is `value` as JSON."""
    return Response(encode_json(value), status, headers, media_type="application/json")


def encode_in_pieces(value: JsonValue) -> list[bytes]:
    """Encode `value` as `encode_json` does, in pieces that together are the document.

    Other threads run between the pieces.
    """
    return list(_encode_pieces(value))


def _encode_pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict) and value:
        opening = b"{"
        for key, item in value.items():
            pieces = _encode_pieces(item)
            yield opening + encode_json(key) + b":" + next(pieces)
            yield from pieces
            opening = b","
        yield b"}"
    elif not _is_list(value) or not len(value):
        yield encode_json(value)
    elif _has_long_items(value) or (len(value) <= PIECE_ITEMS and any(_is_list(item) for item in value)):
        opening = b"["
        for item in value:  # lists of long ones, such as the tokens of some texts
            pieces = _encode_pieces(item)
            yield opening + next(pieces)
            yield from pieces
            opening = b","
        yield b"]"
    elif len(value) > PIECE_ITEMS:
        opening = b"["
        for start in range(0, len(value), PIECE_ITEMS):
            yield opening + encode_json(value[start : start + PIECE_ITEMS])[1:-1]
            opening = b","
        yield b"]"
    else:
        yield encode_json(value)


def _has_long_items(value: Any) -> bool:
    """Return whether an item of a list is, or contains, a long list of lists or objects."""
    return isinstance(value, list) and _has_items(value[0]) and any(map(_is_long, value))


def _is_long(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_long, value.values()))
    return _is_list(value) and len(value) > PIECE_ITEMS and _has_items(value[0])


def _has_items(value: Any) -> bool:
    return isinstance(value, dict) or _is_list(value)


def _is_list(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return False
    return isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)


def decode_object(body: bytes | bytearray) -> Mapping[str, Any]:
    """Decode the JSON object in `body`. Raises `InvalidJson`."""
    if not body:
        raise InvalidJson("The body is empty. Send a JSON object.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # Only the message and the position: the error's attribute `doc` is the body itself.
        raise _invalid(body, error.msg, error.pos) from None
    if not isinstance(value, dict):
        raise InvalidJson("The body must be a JSON object.")
    return value


def _invalid(body: bytes | bytearray, fault: str, position: int) -> InvalidJson:
    field = find_half_character(body) if "surrogate" in fault else None
    if field is None:
        return InvalidJson(f"The body is not valid JSON: {fault} at position {position}.")
    return InvalidJson(
        f"`{field}` has half a character, such as of an emoji that was cut. Cut texts between characters.",
        field=field,
    )


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
