"""Checks that the model's tables have a row for each token.

The files of a tokenizer may have tokens with ids after the last row. transformers loads such a model too, and
fails for texts with these tokens.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vecmill.errors import CorruptModel, InvalidRequest
from vecmill.values.messages import show

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class RowlessTokens:
    """The tokens of a tokenizer for which the table of tokens has no row: their texts by their ids."""

    texts: dict[int, str]

    @classmethod
    def of(cls, tokenizer: Any, highest_id: int, rows: int) -> Self:
        """Find those of a `tokenizers.Tokenizer`, whose highest id is given, for a table of `rows` rows."""
        if highest_id < rows:
            return cls({})
        numbers = tokenizer.get_vocab(with_added_tokens=True)
        return cls({number: token for token, number in numbers.items() if number >= rows})

    def refuse(self, ids: Collection[int], where: str) -> None:
        """Raise `InvalidRequest` if one of them is among the `ids` of the text `where`."""
        if not self.texts or self.texts.keys().isdisjoint(ids):
            return
        token = next(self.texts[number] for number in ids if number in self.texts)
        raise InvalidRequest(
            f"{where} has the token {show(token)}, for which the model has no embedding. Send the text "
            "without it.",
            field="input",
        )


def find_highest_id(tokenizer: Any) -> int:
    """Return the highest id of the tokens of a `tokenizers.Tokenizer`, -1 if it has none."""
    if type(tokenizer.model).__name__ == "Unigram":  # a list, whose places are the ids
        pieces: int = tokenizer.get_vocab_size(with_added_tokens=False)
        return max(pieces - 1, *map(int, tokenizer.get_added_tokens_decoder()), -1)
    count: int = tokenizer.get_vocab_size(with_added_tokens=True)
    # So many ids are all of them. Most vocabularies are like this, and a dictionary takes twice as long.
    if None not in map(tokenizer.id_to_token, range(count)):
        return count - 1
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def check_special(ids: Sequence[int], types: Sequence[int], description: "ModelDescription") -> None:
    """Raise `CorruptModel` if the tables have no row for a special token in `ids`, or for its type."""
    if description.special_tokens and not ids:
        raise CorruptModel(
            f"{description.tokenizer_file} makes no tokens of a text. Download the model again."
        )
    most_types = max(2, description.encoder.token_types)
    if max(types, default=0) >= most_types or max(ids, default=0) >= description.token_count:
        raise CorruptModel(
            f"{description.tokenizer_file} adds tokens to texts whose ids or types are above the model's "
            "vocab_size or type_vocab_size. Download the model again."
        )
