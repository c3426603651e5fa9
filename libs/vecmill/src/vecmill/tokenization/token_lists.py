"""The tokens of one text as lists, and the special tokens around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vecmill.errors import CorruptModel
from vecmill.tokenization.pieces import NO_PLACES, Body, to_places
from vecmill.values.aliases import IntArray

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class TokenLists:
    """The tokens of a text. `offsets` (tokens, 2) int64 are starts and ends in the text.

    `words`, `offsets` and `is_special` are empty unless places were asked for.
    """

    ids: list[int]
    types: list[int]
    words: list[str]
    offsets: IntArray
    is_special: list[int]

    @classmethod
    def of(cls, encoding: Any, types: list[int], places: bool) -> Self:
        """Read the library's encoding of a text. `types` are the token types that the model reads."""
        if not places:
            return cls(encoding.ids, types, [], NO_PLACES, [])
        offsets = to_places(encoding.offsets)
        return cls(encoding.ids, types, encoding.tokens, offsets, encoding.special_tokens_mask)

    @classmethod
    def inside(cls, body: Body) -> Self:
        """Make the lists of a text that gets no special tokens, and so no token types."""
        return cls(body.ids, [], body.words, body.offsets, [0] * len(body.ids))


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
            return TokenLists(*(getattr(tokens, name)[cut] for name in TokenLists.__slots__))

        types = tokens.types[leading : leading + 1] or [0]
        return cls(part(slice(leading)), part(slice(len(tokens.ids) - trailing, None)), types[0])

    def around(self, body: Body, *, places: bool) -> TokenLists:
        """Return the tokens of a text between the special tokens."""
        before, after, count = self.before, self.after, len(body)
        ids = before.ids + body.ids + after.ids
        types = [*before.types, *[self.text_type] * count, *after.types]
        if not places:
            return TokenLists(ids, types, [], NO_PLACES, [])
        return TokenLists(
            ids,
            types,
            before.words + body.words + after.words,
            np.concatenate([before.offsets, *body.places, after.offsets]),
            [*before.is_special, *[0] * count, *after.is_special],
        )


def check_special(tokens: TokenLists, description: "ModelDescription") -> None:
    """Raise `CorruptModel` if the model's tables have no row for a special token or for its type."""
    if description.special_tokens and not tokens.ids:
        raise CorruptModel(
            f"{description.tokenizer_file} makes no tokens of a text. Download the model again."
        )
    most_types = max(2, description.encoder.token_types)
    if max(tokens.types, default=0) >= most_types or max(tokens.ids, default=0) >= description.token_count:
        raise CorruptModel(
            f"{description.tokenizer_file} adds tokens to texts whose ids or types are above the model's "
            "vocab_size or type_vocab_size. Download the model again."
        )
