"""Refusals of texts that cannot be tokenised, or are too long."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import numpy as np

from vecmill.errors import (
    InputTooLong,
    InvalidRequest,
    RequestError,
    TokenizationFailed,
    VecmillError,
)
from vecmill.requests import Truncation
from vecmill.values.interruptions import INTERRUPTIONS

logger = logging.getLogger(__name__)

_INPUT = re.compile(r"`input\[(\d+)\]`")


def input_at(index: int) -> str:
    """Return the name of input number `index` in errors. `fields_renamed` changes the name."""
    return f"`input[{index}]`"


@contextmanager
def inputs_renumbered(numbers: Sequence[int]) -> Iterator[None]:
    """Replace the number of an input in a `RequestError` that is raised inside the context.

    `numbers` are the positions in the request of the inputs that are encoded together.
    """
    try:
        yield
    except RequestError as error:
        error.rename_places(lambda text: _INPUT.sub(lambda found: input_at(numbers[int(found[1])]), text))
        raise


def check_text(value: object, where: str) -> None:
    """Raise `InvalidRequest` unless `value` is a text."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} is not a text.", field="input")


# What the library raises for half of a surrogate pair.
NOT_UNICODE = (TypeError, UnicodeEncodeError)


@contextmanager
def unicode_required(where: str) -> Iterator[None]:
    """Raise `InvalidRequest` if what is done inside the context finds half of a surrogate pair in a text."""
    try:
        yield
    except NOT_UNICODE as error:
        raise InvalidRequest(
            f"{where} is not valid Unicode: it holds half of a surrogate pair. Send whole characters.",
            field="input",
        ) from error


@contextmanager
def failures_contained(
    part: str, characters: int, passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn what a library raises inside the context, for a text, into `TokenizationFailed`.

    `part` is what fails, in the error and in the log. Errors of vecmill, interruptions and what is `passing`
    pass.
    """
    passed: tuple[type[BaseException], ...] = (VecmillError, *INTERRUPTIONS, *passing)
    try:
        yield
    except passed:
        raise
    except BaseException as error:
        # Its message may have parts of the text.
        logger.error(
            "the %s failed for a text of %d characters: %s; the level debug has the details",
            *(part, characters, type(error).__name__),
        )
        logger.debug("the %s failed", part, exc_info=error)
        raise TokenizationFailed(f"The {part} failed for this text. The log says more.") from error


def refuse_empty(where: str) -> NoReturn:
    """Raise `InvalidRequest` for a text or a pair without tokens, which no encoder can compute."""
    raise InvalidRequest(
        f"{where} has no tokens, and this model adds none of its own. Send a text with some content.",
        field="input",
    )


def check_length(count: int, max_tokens: int, truncation: Truncation, where: str) -> None:
    """Raise `InputTooLong` if the request refuses truncation. The error calls the text `where`."""
    if not truncation.is_refused:
        return
    raise InputTooLong(
        f"{where} has {count} tokens; at most {max_tokens} are read. Shorten it, allow truncation, or ask "
        "for chunks.",
        token_count=count,
        max_tokens=max_tokens,
        where=where,
        field="input",
    )


def check_token_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    """Raise `InvalidRequest` unless all are whole numbers within the vocabulary."""
    if {*map(type, token_ids)} == {int} and min(token_ids) >= 0 and max(token_ids) < vocab_size:
        return
    for position, token_id in enumerate(token_ids):
        if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
            raise InvalidRequest(
                f"`input`: the token id at position {position} is not a whole number.", field="input"
            )
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"`input`: the token id at position {position} is outside this model's vocabulary, "
                f"0 to {vocab_size - 1}.",
                field="input",
            )
