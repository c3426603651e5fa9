"""What truncation drops of the inputs of a request."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Unread(Protocol):
    """A part of a text that no model reads. `tokenization` makes such parts.

    `counted` is the number of its tokens that are counted so far. `is_exact` tells whether that is the number
    of all its tokens.
    """

    @property
    def characters(self) -> int: ...

    @property
    def counted(self) -> int: ...

    @property
    def is_exact(self) -> bool: ...

    def count_in_slices(self) -> Generator[int, Any, None]:
        """Count the tokens, in slices as in `tokenization.pieces`."""
        ...


@dataclass(frozen=True, slots=True)
class TextCut:
    """What truncation dropped of one input: `tokens`, and the tokens of the parts that are `unread`.

    `index` is the number of the input in its request, `None` if it is that of the token sequence. Without
    `is_exact`, it dropped more tokens than that.
    """

    tokens: int
    unread: tuple[Unread, ...] = ()
    is_exact: bool = True
    index: int | None = None


def make_cuts(tokens: int, unread: Sequence[Unread] = ()) -> tuple[TextCut, ...]:
    """Return the cut of an input that lost `tokens` and the parts that are `unread`, none if it lost none."""
    return (TextCut(tokens, tuple(unread)),) if tokens > 0 else ()
