"""The tokens of one text as lists, as the tokenizers library returns them, and their places in the text."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from vecmill.tokenization.pieces import NO_PLACES, Body, UnreadText, read_places
from vecmill.values.aliases import IntArray


@dataclass(frozen=True, slots=True)
class TokenLists:
    """The tokens of a text. `offsets` (tokens, 2) int64 are starts and ends in the text.

    `words`, `offsets` and `is_special` are empty unless places were asked for. `unread` is the part of the
    text that was not read, if it is kept to be counted.
    """

    ids: list[int]
    types: list[int]
    words: list[str]
    offsets: IntArray
    is_special: list[int]
    unread: UnreadText | None = None

    @classmethod
    def of(cls, encoding: Any, types: list[int], places: bool) -> Self:
        """Read the library's encoding of a text. `types` are the token types that the model reads."""
        if not places:
            return cls(encoding.ids, types, [], NO_PLACES, [])
        offsets = read_places(encoding)
        return cls(encoding.ids, types, encoding.tokens, offsets, encoding.special_tokens_mask)

    @classmethod
    def inside(cls, body: Body) -> Self:
        """Make the lists of a text that gets no special tokens, and so no token types."""
        return cls(body.ids, [], body.words, body.offsets, [0] * len(body.ids), body.unread)

    @property
    def parts_unread(self) -> tuple[UnreadText, ...]:
        """The part of the text that was not read, if there is one."""
        return () if self.unread is None else (self.unread,)


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens before and after a text, and the token type of the text."""

    before: TokenLists
    after: TokenLists
    text_type: int

    @classmethod
    def of(cls, tokens: TokenLists, leading: int, trailing: int) -> Self:
        """Take the special tokens of any text: the first `leading` and the last `trailing` of `tokens`."""

        def part(cut: slice) -> TokenLists:
            return TokenLists(
                tokens.ids[cut],
                tokens.types[cut],
                tokens.words[cut],
                tokens.offsets[cut],
                tokens.is_special[cut],
            )

        types = tokens.types[leading : leading + 1] or [0]
        return cls(part(slice(leading)), part(slice(len(tokens.ids) - trailing, None)), types[0])

    def around(self, body: Body, *, places: bool) -> TokenLists:
        """Return the tokens of a text between the special tokens."""
        before, after, count = self.before, self.after, len(body)
        ids = before.ids + body.ids + after.ids
        types = [*before.types, *[self.text_type] * count, *after.types]
        if not places:
            return TokenLists(ids, types, [], NO_PLACES, [], body.unread)
        return TokenLists(
            ids,
            types,
            before.words + body.words + after.words,
            np.concatenate([before.offsets, *body.places, after.offsets]),
            [*before.is_special, *[0] * count, *after.is_special],
            body.unread,
        )


@dataclass(frozen=True, slots=True)
class Spans:
    """The start and the end of each token of a sequence in its text, in characters.

    `is_special` marks the special tokens, which have no place in the text.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    is_special: tuple[bool, ...]
