"""Checks how a program calls a mill: the types in its request, and the event loop.

No type checker may have seen the program. Servers read their requests from JSON, field by field, and need
none of this.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vecmill.errors import InvalidRequest, NotReady
from vecmill.requests import Chunking, EmbedPictures, Picture, Priority, Request

# The fields of requests that hold texts, pairs or token ids.
_INPUTS = ("inputs", "texts", "queries", "documents")


def check_call(request: object, loop: asyncio.AbstractEventLoop | None) -> None:
    """Check the request of a call of a mill that was started on `loop`, if it was started.

    Raises `InvalidRequest`, which names the field, for a value that no request can have, and `NotReady` if
    the mill was not started, or runs on another event loop than the call.
    """
    if not isinstance(request, Request):
        raise InvalidRequest(f"`run` takes a request, such as Embed, and no {type(request).__name__}.")
    for field in _INPUTS:
        _check_inputs(field, getattr(request, field, ()), takes_pictures=isinstance(request, EmbedPictures))
    chunking = getattr(request, "chunking", None)
    if not isinstance(chunking, Chunking | None):
        raise _wrong("chunking", chunking, 'a Chunking, such as Chunking("chunks")')
    if request.priority is not None and request.priority not in list(Priority):
        raise _wrong("priority", request.priority, f"one of {', '.join(Priority)}")
    limit_s: object = request.timeout_s
    if limit_s is not None and not _is_duration(limit_s):
        raise _wrong("timeout_s", limit_s, "a number of seconds above 0, or None")
    if loop is None:
        raise NotReady("The mill is not started. Use `async with`, or call `start`.")
    if loop is not asyncio.get_running_loop():
        raise NotReady("The mill runs on another event loop. Use one loop, or a SyncMill for threads.")


def to_tuple(field: str, inputs: Iterable[str]) -> tuple[str, ...]:
    """Return the items of a list, column or iterator. Raises `InvalidRequest` for one text or a mapping."""
    _check_container(field, inputs)
    return tuple(inputs)


def _check_inputs(field: str, inputs: object, *, takes_pictures: bool) -> None:
    for index, each in enumerate(_check_container(field, inputs)):
        if takes_pictures and isinstance(each, Picture):
            continue
        if not isinstance(each, Sequence | np.ndarray) or isinstance(each, bytes):
            raise _wrong(f"{field}[{index}]", each, "a text or a Picture" if takes_pictures else "a text")


def _check_container(field: str, inputs: object) -> Iterable[object]:
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping):
        raise _wrong(field, inputs, "a list or tuple of texts")
    return inputs


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value) and value > 0


def _wrong(field: str, value: object, expected: str) -> InvalidRequest:
    shown = repr(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"
    return InvalidRequest(f"`{field}` is {shown}. It must be {expected}.", field=field)
