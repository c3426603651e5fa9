"""The padding of texts to one length, for encoders that were trained with it and read it as text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from vecmill.errors import CorruptModel
from vecmill.models.description import ModelDescription
from vecmill.values.batch import TokenSequence
from vecmill.values.messages import show


@dataclass(frozen=True, slots=True)
class TextPadding:
    """Padding to `length` tokens with the token `token_id`, before the text if `on_left`."""

    length: int
    token_id: int
    on_left: bool

    @classmethod
    def of(cls, description: ModelDescription, tokenizer: Any) -> Self | None:
        """Return the padding of a model, `None` if its texts are not padded.

        `tokenizer` is the `tokenizers.Tokenizer` of the model. Raises `CorruptModel` if it lacks the token.
        """
        asked = description.padding
        if asked is None:
            return None
        token_id = tokenizer.token_to_id(asked.token)
        if token_id is None:
            raise CorruptModel(
                f"{description.tokenizer_file} has no token {asked.token!r}, with which texts are padded, by "
                "pad_token of tokenizer_config.json. Download the model again."
            )
        if token_id >= description.vocab_size:
            raise CorruptModel(
                f"{description.tokenizer_file}: the token {show(asked.token)}, with which texts are padded "
                f"(pad_token of tokenizer_config.json), has the id {token_id}, but there are "
                f"{description.vocab_size} embeddings. Download the model again."
            )
        return cls(description.max_tokens, token_id, asked.on_left)

    def pad(self, sequences: Sequence[TokenSequence]) -> list[TokenSequence]:
        """Return the sequences with the padding. All tokens are attended to."""
        return [self._pad(each) for each in sequences]

    def _pad(self, sequence: TokenSequence) -> TokenSequence:
        filling = np.full(self.length - len(sequence), self.token_id, np.int64)
        parts = (filling, sequence.token_ids) if self.on_left else (sequence.token_ids, filling)
        padded = TokenSequence.of(np.concatenate(parts).tolist(), prompt_length=sequence.prompt_length)
        return replace(padded, cuts=sequence.cuts)
