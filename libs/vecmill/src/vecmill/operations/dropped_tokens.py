"""The count of the tokens that truncation dropped of each input of a request.

The texts were read as far as the model reads. The rest is counted while the model computes, in the turns that
no other text needs. What is not counted when the answer is ready, and has waited a little, is told as a lower
bound.
"""

from collections.abc import Mapping, Sequence

from vecmill.results import Truncated
from vecmill.tokenization.pieces import Slices
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut, Unread

# An answer with a deadline waits so long for the count.
COUNT_WAIT_S = 1.0


class DroppedTokens:
    """The cuts of a request's inputs."""

    def __init__(self, sequences: Sequence[TokenSequence]) -> None:
        self._cuts: dict[int, list[TextCut]] = {}
        for position, sequence in enumerate(sequences):
            for cut in sequence.cuts:
                index = position if cut.index is None else cut.index
                self._cuts.setdefault(index, []).append(cut)
        # The query of a rerank request is part of every pair.
        parts = [part for cuts in self._cuts.values() for cut in cuts for part in cut.unread]
        self._unread: Mapping[int, Unread] = {id(part): part for part in parts if part.characters}

    @property
    def texts(self) -> int:
        """The number of texts that have a part to count."""
        return len(self._unread)

    @property
    def characters(self) -> int:
        """The number of characters to count."""
        return sum(part.characters for part in self._unread.values())

    def count_in_slices(self) -> Slices[None]:
        """Count the parts, the shortest first, in slices."""
        for part in sorted(self._unread.values(), key=lambda part: part.characters):
            yield from part.count_in_slices()

    def found(self) -> tuple[Truncated, ...]:
        """Return what is counted so far, in the order of the inputs."""
        found = (_sum_up(index, cuts) for index, cuts in sorted(self._cuts.items()))
        # A text of which only white space was cut off has lost no token.
        return tuple(each for each in found if each.token_count or not each.is_exact)


def _sum_up(index: int, cuts: Sequence[TextCut]) -> Truncated:
    parts = [part for cut in cuts for part in cut.unread]
    count = sum(cut.tokens for cut in cuts) + sum(part.counted for part in parts)
    is_exact = all(cut.is_exact for cut in cuts) and all(part.is_exact for part in parts)
    return Truncated(index, max(0, count), is_exact)
