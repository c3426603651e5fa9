"""Checks how a program calls a mill: the types in its request, and the event loop.

No type checker may have seen the program. Servers read their requests from JSON, field by field, and need
none of this.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from vecmill.errors import InvalidRequest, NotReady
from vecmill.requests import (
    DEFAULT_TEXT_OPTIONS,
    Chunking,
    Classify,
    ClassifyByLabels,
    EmbedPictures,
    Picture,
    Priority,
    Request,
)
from vecmill.values.field_types import find_wrong_field
from vecmill.values.output_kinds import OutputDtype

T = TypeVar("T")

# The fields of requests that hold texts, pairs or token ids.
_INPUTS = ("inputs", "texts", "queries", "documents", "labels")
# The arguments of short forms that may be one text.
_ALONE = ("texts", "query")


def check_call(request: object, loop: asyncio.AbstractEventLoop | None) -> None:
    """Check the request of a call of a mill that was started on `loop`, if it was started.

    Raises `InvalidRequest`, which names the field, for a value that no request can have, and `NotReady` if
    the mill was not started, or runs on another event loop than the call.
    """
    if not isinstance(request, Request):
        raise InvalidRequest(f"`run` takes a request, such as Embed, and no {type(request).__name__}.")
    for field in _INPUTS:
        _check_inputs(
            field,
            getattr(request, field, ()),
            has_pairs=isinstance(request, Classify),
            has_pictures=field == "inputs" and isinstance(request, EmbedPictures | ClassifyByLabels),
        )
    _check_options(request)
    if loop is None:
        raise NotReady("The mill is not started. Use `async with`, or call `start`.")
    if loop is not asyncio.get_running_loop():
        raise NotReady("The mill runs on another event loop. Use one loop, or a SyncMill for threads.")


def _check_options(request: Request[Any]) -> None:
    chunking = getattr(request, "chunking", None)
    if not isinstance(chunking, Chunking | None):
        raise _wrong("chunking", chunking, 'a Chunking, such as Chunking("chunks")')
    if request.priority is not None and request.priority not in list(Priority):
        raise _no_choice("priority", request.priority, Priority)
    limit_s: object = request.timeout_s
    if limit_s is not None and not _is_duration(limit_s):
        raise _wrong("timeout_s", limit_s, "a number of seconds above 0, or None")
    for dtype in getattr(request, "dtypes", ()):
        if dtype not in list(OutputDtype):
            raise _no_choice("dtypes", dtype, OutputDtype)
    _check_fields("", request)
    if request.options is not DEFAULT_TEXT_OPTIONS:
        _check_fields("options.", request.options)
        _check_fields("options.truncation.", request.options.truncation)
        most = request.options.truncation.max_tokens
        if most is not None and most < 1:
            raise _wrong("options.truncation.max_tokens", most, "at least 1")


def to_tuple(field: str, inputs: Iterable[T]) -> tuple[T, ...]:
    """Return the items of a list, column or iterator. Raises `InvalidRequest` for one text or a mapping."""
    _check_container(field, inputs)
    return tuple(inputs)


def _check_inputs(field: str, inputs: object, *, has_pairs: bool, has_pictures: bool) -> None:
    if not isinstance(inputs, Sized):  # an iterator, which this check would use up
        raise _wrong(field, inputs, "a list or tuple of texts")
    for index, each in enumerate(_check_container(field, inputs)):
        if type(each) is str or (has_pictures and isinstance(each, Picture)):
            continue
        if isinstance(each, Picture):
            raise _wrong(f"{field}[{index}]", each, "a text. EmbedPictures is the request for pictures")
        is_text_or_ids = isinstance(each, Sequence | np.ndarray) and not isinstance(each, bytes)
        is_pair = isinstance(each, tuple | list) and any(isinstance(part, str) for part in each)
        if not is_text_or_ids or (is_pair and not has_pairs):
            raise _wrong(f"{field}[{index}]", each, "a text or a Picture" if has_pictures else "a text")


def _check_fields(place: str, value: object) -> None:
    wrong = find_wrong_field(value, _INPUTS)
    if wrong is not None:
        raise _wrong(place + wrong.name, wrong.value, wrong.expected)


def _check_container(field: str, inputs: object) -> Iterable[object]:
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping):
        alone = "a text, or " if field in _ALONE else ""
        raise _wrong(field, inputs, f"{alone}a list or tuple of texts")
    return inputs


def _no_choice(field: str, value: object, choices: Iterable[str]) -> InvalidRequest:
    shown = repr(value) if isinstance(value, str) else f"of type {type(value).__name__}"
    return InvalidRequest(f"`{field}` is {shown}. It must be one of {', '.join(choices)}.", field=field)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value) and value > 0


def _wrong(field: str, value: object, expected: str) -> InvalidRequest:
    shown = repr(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"
    return InvalidRequest(f"`{field}` is {shown}. It must be {expected}.", field=field)
