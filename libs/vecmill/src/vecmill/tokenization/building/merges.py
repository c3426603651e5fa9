"""Derives the merges of byte-pair encoding from a vocabulary alone, in the order in which they apply.

Files of sentencepiece and tiktoken have no merges. Each way to cut a piece of the vocabulary into two pieces
of the vocabulary is a merge. The merges of a piece with a low id come first.

The work grows with the square of a piece's length, so both have limits.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from vecmill.errors import CorruptModel

Piece = TypeVar("Piece", str, bytes)

# The largest published vocabulary, Gemma's with 262,144 pieces, has 600,000 merges, and a work of 2**24.
_MOST_MERGES = 2**21
_MOST_WORK = 2**28


def derive_merges(
    numbers: Mapping[Piece, int],
    path: Path,
    order: Callable[[tuple[Piece, Piece]], tuple[int, int]] | None = None,
) -> list[tuple[Piece, Piece]]:
    """Return the merges of a vocabulary, which maps each piece to its id in the order of the ids.

    `order` is the key that sorts the merges of one piece. Without it, shorter first parts come first. Raises
    `CorruptModel`, which names `path`, if the pieces are too long or have too many merges.
    """
    if sum(len(piece) ** 2 for piece in numbers) > _MOST_WORK:
        raise CorruptModel(f"{path}: the pieces are too long for a vocabulary. Download the model again.")
    merges: list[tuple[Piece, Piece]] = []
    for piece in numbers:
        cuts = [
            (first, second)
            for cut in range(1, len(piece))
            if (first := piece[:cut]) in numbers and (second := piece[cut:]) in numbers
        ]
        merges += cuts if order is None else sorted(cuts, key=order)
        if len(merges) > _MOST_MERGES:
            raise CorruptModel(
                f"{path}: the vocabulary has more than {_MOST_MERGES} merges, the limit for such a file."
            )
    return merges
