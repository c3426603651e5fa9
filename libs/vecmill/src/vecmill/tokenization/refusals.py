"""Refusals of texts that cannot be tokenised, or are too long."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from vecmill.errors import InputTooLong, InvalidRequest, RequestError
from vecmill.requests import Truncation

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


def not_unicode(where: str) -> InvalidRequest:
    """Return the error for a text with half of a surrogate pair."""
    return InvalidRequest(
        f"{where} is not valid Unicode: it holds half of a surrogate pair. Send whole characters.",
        field="input",
    )


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
    # The wording that clients of the OpenAI API look for.
    raise InputTooLong(
        f"This model's maximum context length is {max_tokens} tokens, however you requested "
        f"{count} tokens. Please reduce your prompt; or completion length. The text is {where}.",
        token_count=count,
        max_tokens=max_tokens,
        where=where,
        field="input",
    )
