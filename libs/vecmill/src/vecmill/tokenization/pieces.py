"""Work on texts in slices: tokenises long texts piece by piece, and reads no more than the model does.

Slices. Long work can stop between slices, and other work can run in between. Work is a generator. Before each
slice it yields the number of characters that the slice will read, and at the end it returns the result.
Whoever does the work sends how the slice shall be read: `SliceMode`.

Pieces. A text is split at boundaries (see `boundaries`), and each piece is tokenised alone. A piece begins
with the character before its boundary, whose tokens are then dropped: so the tokenizer does not take the
piece for the beginning of a text. If truncation keeps the first tokens of a text, the reading ends when there
are enough; if it keeps the last tokens, the reading goes from the end of the text to its beginning.

Unbroken parts. A part of a text without a boundary is read by one call, however long it is, and what the
call returns is one object: to read its lists, and to free it, holds the interpreter lock for up to 0.4 s for
each million tokens. Therefore a long part is counted first, in slices that are cut anywhere, and a part of
too many tokens is refused.

Counts. What is not read begins and ends at a boundary too, so its tokens can be counted later, without those
that were read: an `UnreadText` has it. A `CountBudget` bounds the characters that are kept for this.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from vecmill.errors import RequestTooLarge
from vecmill.tokenization.boundaries import Boundaries
from vecmill.values.aliases import IntArray

T = TypeVar("T")


class SliceMode(Enum):
    """How a slice is read: `AT_ONCE` by whoever waits for it, or else in turn with other work.

    At once, a short text may be read with the interpreter lock. To give up the lock and to get it back takes
    longer than to read such a text, if other threads wait for the lock.
    """

    AT_ONCE = "at once"


Slices = Generator[int, SliceMode | None, T]


def complete(work: Slices[T]) -> T:
    """Do all slices now, and return the result."""
    try:
        next(work)
        while True:
            work.send(SliceMode.AT_ONCE)
    except StopIteration as end:
        result: T = end.value
        return result


# A piece takes a few milliseconds. Shorter pieces lose time, since each is a call of its own.
LONGEST_PIECE = 8_192
SHORTEST_PIECE = 1_024
# The characters of a token in most texts, a space included. Too few only make a second piece necessary.
TOKEN_CHARACTERS = 6
# A shared prefix of several texts is tokenised once if it is at least this long.
SHORTEST_SHARED = 64

NO_PLACES: IntArray = np.zeros((0, 2), np.int64)
NO_PLACES.flags.writeable = False

# Text, whether places are needed -> the library's encoding, without special tokens.
Encode = Callable[[str, bool], Any]

# Nothing can interrupt the reading of a piece. Longer ones are not worth it for a count.
LONGEST_COUNTED = 65_536
# The characters of the inputs of a request that are read only to count their tokens.
MOST_COUNTED = 1_000_000

# The tokens of a part without a boundary. To free what the library returns for so many takes about 0.1 s.
MOST_UNBROKEN = 400_000
# A shorter part without a boundary has few enough tokens in any vocabulary.
LONGEST_UNCOUNTED = 65_536
# All places of so many tokens are read by one call.
PLACES_AT_ONCE = 16_384

# The token ids of pieces that several texts begin with. A piece may have other tokens where a text begins,
# since some tokenizers put a space before a text.
Known = dict[tuple[bool, str], list[int]]


@dataclass(slots=True)
class Body:
    """The tokens of a text or of a part of it, without special tokens.

    `words` and `places` are empty unless places are asked for. Each array of `places` (tokens, 2) has the
    starts and ends of some tokens in the whole text, in characters. `unread` is the part of the text that was
    not read, if there is one and the reading has a budget.
    """

    ids: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    places: list[IntArray] = field(default_factory=list)
    unread: "UnreadText | None" = None

    @property
    def offsets(self) -> IntArray:
        """The start and the end of each token: (tokens, 2) int64."""
        return np.concatenate([NO_PLACES, *self.places])

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a text to read: all tokens, or `room` tokens at its beginning or at its end.

    If `room` is `None`, all tokens are read. With `places`, the tokens have words and offsets. With a
    `budget`, the parts that are not read are kept to be counted.
    """

    room: int | None = None
    from_end: bool = False
    places: bool = False
    budget: "CountBudget | None" = None

    @property
    def piece(self) -> int:
        """The number of characters of a piece."""
        if self.room is None:
            return LONGEST_PIECE
        return min(max(SHORTEST_PIECE, self.room * TOKEN_CHARACTERS), LONGEST_PIECE)


class PieceReader:
    """The reader of long texts for one tokenizer. Safe for any number of threads."""

    def __init__(self, encode: Encode, boundaries: Boundaries) -> None:
        self._encode = encode
        self.boundaries = boundaries

    def are_worth_it(self, text: str, reading: Reading, shared: int, known: Known | None) -> bool:
        """Return whether reading in pieces saves work for a text. See `read`."""
        return len(text) > 2 * reading.piece or (known is not None and shared >= SHORTEST_SHARED)

    def read(self, text: str, reading: Reading, shared: int = 0, known: Known | None = None) -> Slices[Body]:
        """Return at least the tokens that `reading` asks for.

        The first `shared` characters may be the same in other texts of the request, whose common pieces are
        then kept in `known`.
        """
        if reading.from_end and reading.room is not None:
            return (yield from self._read_backwards(text, reading))
        body, start, spellings = Body(), 0, dict[str, str]()
        head = self._end_of_head(text, shared) if known is not None and not reading.places else 0
        while start < len(text) and (reading.room is None or len(body) < reading.room):
            in_head = start < head
            end = self._end_of_piece(text, start, reading.piece, head if in_head else len(text))
            if in_head and known is not None:
                key = (start == 0, text[start:end])
                if key not in known:
                    yield from refuse_unbroken(self._encode, text, start, end)
                    yield end - start
                    known[key] = self._part(text, start, end, places=False).ids
                body.ids += known[key]
            else:
                yield from refuse_unbroken(self._encode, text, start, end)
                yield end - start
                self._append(body, self._part(text, start, end, reading.places), spellings)
            start = end
        body.unread = self._leave(text, start, len(text), reading)
        return body

    def _leave(self, text: str, start: int, end: int, reading: Reading) -> "UnreadText | None":
        if reading.budget is None or start >= end:
            return None
        return reading.budget.take(self, text, start, end)

    def find_piece(self, text: str, start: int) -> int:
        """Return the end of the piece that begins at the boundary `start`."""
        return self._end_of_piece(text, start, LONGEST_PIECE, len(text))

    def count_part(self, text: str, start: int, end: int) -> int:
        """Return the number of tokens of `text[start:end]`; both are boundaries, or the ends of the text."""
        return len(self._part(text, start, end, places=False))

    def _read_backwards(self, text: str, reading: Reading) -> Slices[Body]:
        assert reading.room is not None
        parts: list[Body] = []
        count, end, size = 0, len(text), reading.piece
        while end > 0 and count < reading.room:
            start = self.boundaries.first(text, max(0, end - size), end) if end > size else 0
            if start is None:  # look further to the left
                size *= 2
                continue
            yield from refuse_unbroken(self._encode, text, start, end)
            yield end - start
            parts.append(self._part(text, start, end, reading.places))
            count, end, size = count + len(parts[-1]), start, reading.piece
        parts.reverse()
        return Body(
            list(chain.from_iterable(part.ids for part in parts)),
            list(chain.from_iterable(part.words for part in parts)),
            list(chain.from_iterable(part.places for part in parts)),
            self._leave(text, 0, end, reading),
        )

    def _end_of_head(self, text: str, shared: int) -> int:
        """Return the last boundary in the shared prefix, 0 if it is not worth a piece of its own."""
        if shared < SHORTEST_SHARED or shared >= len(text):
            return 0
        # The character after the boundary's separator belongs to the prefix too.
        return self.boundaries.last(text, 0, shared - 1) or 0

    def _end_of_piece(self, text: str, start: int, size: int, end: int) -> int:
        if end - start <= 2 * size:
            return end
        return self.boundaries.first(text, start + size, end) or end

    def _part(self, text: str, start: int, end: int, places: bool) -> Body:
        """Tokenise `text[start:end]`; both are boundaries, or the ends of the text."""
        if not start:
            return _body(self._encode(text[:end], places), 0, 0, places)
        skipped = len(self._encode(text[start - 1 : start], False))
        return _body(self._encode(text[start - 1 : end], places), skipped, start - 1, places)

    def _append(self, body: Body, part: Body, spellings: dict[str, str]) -> None:
        body.ids += part.ids
        # One object for all tokens with the same spelling. Freeing many objects at once would take long.
        body.words += [spellings.setdefault(word, word) for word in part.words]
        body.places += part.places


class UnreadText:
    """A part of a text that was not read, from one boundary to another, whose tokens can be counted.

    One thread counts at a time. Another may look how far it is.
    """

    def __init__(self, pieces: PieceReader, text: str, start: int, *, is_whole: bool) -> None:
        """`text[start:]` is the part, or its beginning unless `is_whole`."""
        self._pieces = pieces
        self._text = text
        self._start = start
        self._is_whole = is_whole
        self.characters = len(text) - start
        self.counted = 0
        self.is_exact = False

    def count_in_slices(self) -> Slices[None]:
        """Count the tokens in slices, until a piece is too long."""
        text = self._text
        while self._start < len(text):
            end = self._pieces.find_piece(text, self._start)
            if end - self._start > LONGEST_COUNTED:
                return
            yield end - self._start
            self.counted += self._pieces.count_part(text, self._start, end)
            self._start = end
        self.is_exact = self._is_whole


class CountBudget:
    """The characters that may still be kept to be counted, of the texts that are encoded together."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self, pieces: PieceReader, text: str, start: int, end: int) -> UnreadText:
        """Keep `text[start:end]`, or as much of its beginning as there is room for."""
        stop = end
        if end - start > self._left:
            stop = pieces.boundaries.last(text, start, start + self._left + 1) or start
        self._left -= stop - start
        before = 0 if start == 0 else 1  # the tokens of a piece depend on the character before it
        return UnreadText(pieces, text[start - before : stop], before, is_whole=stop == end)


def refuse_unbroken(encode: Encode, text: str, start: int, end: int) -> Slices[None]:
    """Raise `RequestTooLarge` if `text[start:end]`, without a boundary, has more than `MOST_UNBROKEN` tokens.

    The tokens of its slices are counted, which are a few more than those of the part.
    """
    if end - start <= LONGEST_UNCOUNTED:
        return
    count = 0
    for first in range(start, end, LONGEST_PIECE):
        part = text[first : min(first + LONGEST_PIECE, end)]
        yield len(part)
        count += len(encode(part, False))
        if count > MOST_UNBROKEN:
            raise RequestTooLarge(
                f"`input` has a text with more than {MOST_UNBROKEN} tokens and no place between them where "
                "the model's tokenizer lets it be divided. Send it in parts.",
                field="input",
            )


def _body(encoding: Any, skipped: int, shift: int, places: bool) -> Body:
    if not places:
        return Body(encoding.ids[skipped:])
    offsets = read_places(encoding)[skipped:] + shift
    return Body(encoding.ids[skipped:], encoding.tokens[skipped:], [offsets])


def read_places(encoding: Any) -> IntArray:
    """Return the starts and ends of the tokens of the library's encoding: (tokens, 2) int64."""
    count = len(encoding)
    if count <= PLACES_AT_ONCE:
        # Much faster than `np.array`.
        flat = chain.from_iterable(encoding.offsets)
    else:
        # The list of all places would hold the interpreter lock while it is made, and while it is freed.
        found = (encoding.token_to_chars(index) or _NO_PLACE for index in range(count))
        flat = chain.from_iterable(found)
    return np.fromiter(flat, np.int64, 2 * count).reshape(-1, 2)


_NO_PLACE = (0, 0)  # of special tokens
