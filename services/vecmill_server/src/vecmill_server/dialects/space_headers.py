"""The headers about the space of an answer with vectors, and the space that a client expects.

    x-space, x-space-exact      the space of the vectors, in the answer
    x-prompt-name               the name of the prompt that went before the texts, in the answer
    x-expected-space            one of the first two, in the request

`vecmill.operations.answer_spaces` finds the space; docs/spaces.md says what it means.
"""

from functools import lru_cache
from typing import Any
from urllib.parse import quote

from vecmill.errors import NotReady
from vecmill.mill import Mill
from vecmill.models.space import EXACT_PREFIX
from vecmill.operations.answer_spaces import AnswerSpace
from vecmill.requests import Request
from vecmill_server.base.errors import OtherSpace
from vecmill_server.dialects.dialect import CompositeRequest
from vecmill_server.http1.request_cycle import write_lines

EXPECTED_SPACE = "x-expected-space"
SPACE_PATTERN = "^[es][0-9]{1,3}-[0-9a-f]{32}$"


def space_of_answer(mill: Mill, request: Request[Any]) -> AnswerSpace | None:
    """Return the space of the answer to a request, `None` if the answer has no vectors. Raises `NotReady`.

    An answer to several requests has the space and the prompt that they have in common, or else the model's
    space and no prompt.
    """
    if not isinstance(request, CompositeRequest):
        return mill.find_space(request)
    found = [one for part in request.parts if (one := mill.find_space(part)) is not None]
    if not found:
        return None
    first, *others = found
    if all(one == first for one in others):
        return first
    is_common = all(one.exact == first.exact for one in others)
    space, exact = (first.space, first.exact) if is_common else (mill.space, mill.exact)
    return AnswerSpace(space, exact, None)


def check_expected_space(expected: str, mill: Mill, request: Request[Any]) -> None:
    """Raise `OtherSpace` if the answer has vectors of another space than the client expects.

    While the model loads its space is not known, and the request is refused for that.
    """
    try:
        found = space_of_answer(mill, request)
    except NotReady:
        return
    if found is None or expected in (found.space, found.exact):
        return
    actual = found.exact if expected.startswith(EXACT_PREFIX[0]) else found.space
    raise OtherSpace(
        f"The client expects vectors of the space {expected}, and this model would return vectors of "
        f"{actual}. They cannot be compared. Ask a server with the model of the stored vectors, or compute "
        "them again.",
        field=EXPECTED_SPACE,
    )


@lru_cache(maxsize=256)
def write_space(space: str, exact: str, prompt_name: str | None) -> bytes:
    """Return the lines of the headers about the space of an answer."""
    headers = [(b"x-space", space.encode()), (b"x-space-exact", exact.encode())]
    if prompt_name is not None:
        # The names of prompts may have any characters.
        name = quote(prompt_name, safe=" !#$&'()*+,/:;=?@[]_-.").strip()
        headers.append((b"x-prompt-name", name.encode("ascii")))
    return write_lines(headers)
