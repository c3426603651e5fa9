"""Texts to token ids, as the model's own tokenizer cuts them.

Source of the rules: sentence-transformers 6.2 (`Transformer.preprocess`, `_get_prompt_length`).
Texts are encoded one by one in the calling thread, each by a batch call for one text: of the
library's calls only those let go of the interpreter lock, and one text at a time bounds memory.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vecmill.errors import CorruptModel, InputTooLong, InvalidRequest
from vecmill.types import TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Tokenizer:
    """The tokenizer of one model. Safe for any number of threads."""

    def __init__(self, tokenizer: Any, description: "ModelDescription") -> None:
        self._tokenizer = tokenizer
        self._max_tokens = description.max_tokens
        self._vocab_size = description.vocab_size
        self._truncate_left = description.truncate_left
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        # A text becomes `leading` special tokens, its own, and `trailing` special tokens.
        mask = tokenizer.encode("a").special_tokens_mask
        self._leading = mask.index(0) if 0 in mask else len(mask)
        self._trailing = sum(mask) - self._leading

    @classmethod
    def load(cls, description: "ModelDescription") -> Self:
        """Read the model's tokenizer.json. Raises `CorruptModel` if it is none."""
        # The library would spread over every core of the machine, behind the back of the core budget.
        os.putenv("TOKENIZERS_PARALLELISM", "false")
        import tokenizers

        path = description.tokenizer_file
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CorruptModel(f"{path} is no tokenizer: {error}. Download the model again.") from error
        # Some files carry the truncation and padding of a training run.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if description.lowercase and not _lowercases(tokenizer.normalizer):
            stages = [tokenizers.normalizers.Lowercase()]
            stages += [tokenizer.normalizer] if tokenizer.normalizer is not None else []
            tokenizer.normalizer = tokenizers.normalizers.Sequence(stages)
        return cls(tokenizer, description)

    def encode(
        self, texts: Sequence[str], *, prompt: str = "", truncate: bool = True, field: str = "input"
    ) -> list[TokenSequence]:
        """Cut each text, with `prompt` before it, into the model's tokens, special ones included.

        A text longer than the model reads is cut to the longest input, or with `truncate=False`
        raises `InputTooLong`. Raises `InvalidRequest` for what is no Unicode text. `field` is the
        name under which errors speak of the texts.
        """
        prompt_length = self._prompt_length(prompt, field) if prompt else 0
        sequences = []
        for index, text in enumerate(texts):
            encoding = self._encode(text, prompt, f"{field}[{index}]", field)
            ids, types, count = encoding.ids, encoding.type_ids, len(encoding)
            if count > self._max_tokens:
                self._check_length(count, truncate, field)
                ids, types = self._cut(ids), self._cut(types)
            sequences.append(
                TokenSequence.of(
                    ids,
                    types,
                    prompt_length=min(prompt_length, len(ids)),
                    token_count_before_truncation=count,
                )
            )
        return sequences

    def from_ids(
        self, token_ids: Sequence[int], *, truncate: bool = True, field: str = "input"
    ) -> TokenSequence:
        """Take the model's own token ids as they are; nothing is added.

        Too many are cut to the first `max_tokens`, or with `truncate=False` raise `InputTooLong`.
        Raises `InvalidRequest` if there are none, or one is no whole number from 0 to the size of
        the vocabulary.
        """
        if not token_ids:
            raise InvalidRequest(f"{field} has no token ids. Send at least one.", field=field)
        for position, token_id in enumerate(token_ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
                raise InvalidRequest(f"{field}: token id {position} is not a whole number.", field=field)
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequest(
                    f"{field}: token id {position} is outside this model's vocabulary, "
                    f"0 to {self._vocab_size - 1}.",
                    field=field,
                )
        if len(token_ids) > self._max_tokens:
            self._check_length(len(token_ids), truncate, field)
        return TokenSequence.of(
            list(token_ids[: self._max_tokens]), token_count_before_truncation=len(token_ids)
        )

    def _encode(self, text: str, prompt: str, where: str, field: str) -> Any:
        if not isinstance(text, str):
            raise InvalidRequest(f"{where} is not a text.", field=field)
        try:
            return self._tokenizer.encode_batch_fast([prompt + text])[0]
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRequest(
                f"{where} is not valid Unicode: it holds half of a surrogate pair. Send whole characters.",
                field=field,
            ) from error

    def _prompt_length(self, prompt: str, field: str) -> int:
        """Tokens that the prompt takes at the front of a text, by the reference's count."""
        ids = self._cut(self._encode(prompt, "", "the prompt", field).ids)
        return len(ids) - 1 if ids[-1:] and ids[-1] in self._special_ids else len(ids)

    def _cut(self, values: list[int]) -> list[int]:
        """Keep the special tokens and as much of the text between them as fits."""
        excess = len(values) - self._max_tokens
        if excess <= 0:
            return values
        end = len(values) - self._trailing
        if self._truncate_left:
            return values[: self._leading] + values[self._leading + excess :]
        return values[: max(end - excess, self._leading)] + values[end:]

    def _check_length(self, count: int, truncate: bool, field: str) -> None:
        if truncate:
            return
        # The wording that clients of the OpenAI API look for.
        raise InputTooLong(
            f"This model's maximum context length is {self._max_tokens} tokens, however you requested "
            f"{count} tokens. Please reduce your prompt; or completion length.",
            token_count=count,
            max_tokens=self._max_tokens,
            field=field,
        )


def _lowercases(normalizer: Any) -> bool:
    """Whether a normalizer has a stage of its own for lower-casing, as the reference asks."""
    stages = normalizer if type(normalizer).__name__ == "Sequence" else [normalizer]
    return any(type(stage).__name__ == "Lowercase" for stage in stages)
