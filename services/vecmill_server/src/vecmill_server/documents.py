"""JSON documents and their fields, and the only user of orjson.

Reading is lenient where clients differ (unknown fields are ignored, null is absent, "true" is true)
and strict where a guess could give a wrong answer. No message repeats what the client sent: it may be
secret, or nested so deeply that printing it fails.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from vecmill.errors import InvalidRequest
from vecmill.types import JsonValue
from vecmill_server.errors import EmptyInput, InvalidJson

LARGEST_WHOLE_NUMBER = 2**31 - 1

# Reading or writing more than this at once would keep the event loop from everybody else.
LARGE_BODY_BYTES = 256 * 1024
LARGE_ROWS = 64

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What surrounds an answer. `created` is a Unix time in seconds."""

    request_id: str
    model: str
    created: int


async def run_off_loop(is_large: bool, function: Callable[[], Result]) -> Result:
    """`function()`, in another thread if it is large: for a small one the hand-over costs more."""
    return await asyncio.to_thread(function) if is_large else function()


def encode_json(value: JsonValue) -> bytes:
    """JSON as bytes. Numpy arrays must be C-contiguous and finite."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def decode_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object in `body`. Raises `InvalidJson`."""
    if not body:
        raise InvalidJson("The body is empty. Send a JSON object.")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The error's own text names what is wrong and where; `doc`, which it carries, is left alone.
        raise InvalidJson(f"The body is not valid JSON: {error.msg} at position {error.pos}.") from None
    if not isinstance(document, dict):
        raise InvalidJson("The body must be a JSON object.")
    return document


def read_string(document: Mapping[str, Any], name: str) -> str | None:
    """A string, or `None` if it is absent. Raises `InvalidRequest`, as all that read do."""
    value = document.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InvalidRequest(f"`{name}` must be a string, not {kind_of(value)}.", field=name)


def read_count(document: Mapping[str, Any], name: str) -> int | None:
    """A whole number from 1 up, or `None`; 0 is how some clients say that they want no limit."""
    value = document.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= LARGEST_WHOLE_NUMBER:
        raise InvalidRequest(f"`{name}` must be a whole number that is not negative.", field=name)
    return value or None


def read_flag(document: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """A boolean, or one in words."""
    value = read_optional_flag(document, name)
    return default if value is None else value


def read_optional_flag(document: Mapping[str, Any], name: str) -> bool | None:
    """The same, or `None` if it is absent."""
    value = document.get(name)
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidRequest(f"`{name}` must be true or false.", field=name)


def kind_of(value: JsonValue) -> str:
    """What JSON calls a value of this type."""
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "this number",
        float: "a fraction or too large a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]


def read_items(
    document: Mapping[str, Any], name: str, wanted: str, *, field: str | None = None
) -> list[JsonValue]:
    """What is in a list, at least one item; `field` is what errors call it, `wanted` what they ask for.

    Raises `EmptyInput` besides.
    """
    field, value = field or name, document.get(name)
    if value is None:
        raise InvalidRequest(f"`{field}` is required: {wanted}.", field=field)
    if not isinstance(value, list):
        raise InvalidRequest(f"`{field}` must be {wanted}, not {kind_of(value)}.", field=field)
    if not value:
        raise EmptyInput(f"`{field}` is an empty list: send at least one.", field=field)
    return value


def read_texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A string, or a list of strings."""
    value = document.get(name)
    if isinstance(value, str):
        return (value,)
    items = read_items(document, name, "a string, or a list of strings")
    return tuple(read_text(item, f"{name}[{index}]") for index, item in enumerate(items))


def read_required(document: Mapping[str, Any], name: str, *, field: str | None = None) -> str:
    """A string that must be there; `field` is what errors call it."""
    field, value = field or name, document.get(name)
    if value is None:
        raise InvalidRequest(f"`{field}` is required: a string.", field=field)
    return read_text(value, field)


def read_text(item: JsonValue, field: str) -> str:
    """A string, named `field` in errors."""
    if isinstance(item, str):
        return item
    raise InvalidRequest(f"`{field}` must be a string, not {kind_of(item)}.", field=field)


def read_raw_scores(document: Mapping[str, Any]) -> bool:
    """Whether scores are asked for as they are before the model's activation, in one of two spellings."""
    activated = read_flag(document, "use_activation", default=True)
    return read_flag(document, "raw_scores", default=not activated)


def refuse_other_modalities(document: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` if the inputs are said to be images or sound."""
    if read_string(document, "modality") not in (None, "text"):
        raise InvalidRequest(
            '`modality` must be "text": this server reads text, and neither images nor audio.',
            field="modality",
        )
