"""Encodes texts to token ids, as the model's own tokenizer does. `pairs` does the same for pairs.

Texts are encoded one by one in the calling thread, which bounds memory. Each text is a batch of one, because
only the library's batch calls release the interpreter lock.

Source of the rules: sentence-transformers 6.2 (`Transformer.preprocess`, `_get_prompt_length`).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.requests import DEFAULT_TRUNCATION, Truncation
from vecmill.results import Token
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.classes import gives_token_types
from vecmill.values.batch import TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription
    from vecmill.models.heads import QueryExpansion


@dataclass(frozen=True, slots=True)
class Spans:
    """The start and the end of each token of a sequence in its text, in characters.

    `is_special` marks the special tokens, which have no place in the text.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    is_special: tuple[bool, ...]


class Tokenizer:
    """The tokenizer of one model. Safe for any number of threads."""

    def __init__(self, tokenizer: Any, description: "ModelDescription") -> None:
        self.truncates_left = _truncates_left(tokenizer, description)
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._max_tokens = description.max_tokens
        self._vocab_size = description.vocab_size
        self._adds_special = description.special_tokens
        self._gives_types = gives_token_types(description.tokenizer_config, description.config)
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        # An encoded text is `leading` special tokens, the tokens of the text, and `trailing` special tokens.
        mask = tokenizer.encode("a", add_special_tokens=self._adds_special).special_tokens_mask
        self._leading = mask.index(0) if 0 in mask else len(mask)
        self._trailing = sum(mask) - self._leading

    @classmethod
    def load(cls, description: "ModelDescription") -> Self:
        """Read the model's tokenizer. Raises the same errors as `read_tokenizer`."""
        # The library would use every core of the machine and ignore the core budget.
        os.putenv("TOKENIZERS_PARALLELISM", "false")
        return cls(read_tokenizer(description), description)

    @property
    def library(self) -> Any:
        """The wrapped `tokenizers.Tokenizer`."""
        return self._tokenizer

    def longest(self, truncation: Truncation) -> int:
        """Return the longest input under `truncation`, in tokens."""
        asked = truncation.max_tokens
        return self._max_tokens if asked is None else min(asked, self._max_tokens)

    def keeps_end(self, truncation: Truncation) -> bool:
        """Return whether truncation cuts off the beginning of a text instead of its end."""
        return self.truncates_left if truncation.keeps_end is None else truncation.keeps_end

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> list[TokenSequence]:
        """Encode each text, with `prompt` before it, to the model's token ids, special tokens included.

        `truncation` decides whether a text that is too long is truncated or raises `InputTooLong`. Raises
        `InvalidRequest` for invalid Unicode, and for a text without tokens if the model adds no special
        tokens.
        """
        limit = self.longest(truncation)
        prompt_length = self._prompt_length(prompt) if prompt else 0
        sequences = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(prompt + text if prompt else text, input_at(index))
            ids, types, count = encoding.ids, self._types(encoding), len(encoding)
            if count > limit:
                check_length(count, limit, truncation)
                ids, types = (self._cut(values, limit, truncation) for values in (ids, types))
            if not ids:
                if self._adds_special:
                    refuse_empty(input_at(index))
                ids, types = [self._vocab_size], [0]  # tables have a row for this
            sequences.append(
                TokenSequence.of(
                    ids,
                    types,
                    prompt_length=min(prompt_length, len(ids)),
                    token_count_before_truncation=count,
                )
            )
        return sequences

    def encode_with_spans(
        self,
        texts: Sequence[str],
        *,
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> list[tuple[TokenSequence, Spans]]:
        """Encode as `encode` does. Return also the place of each token in its text."""
        found = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(text, input_at(index), fast=False)
            count, limit = len(encoding), self.longest(truncation)
            if not count:
                refuse_empty(input_at(index))
            if count > limit:
                check_length(count, limit, truncation)
            ids, types, offsets, special = (
                self._cut(values, limit, truncation)
                for values in (
                    encoding.ids,
                    self._types(encoding),
                    encoding.offsets,
                    encoding.special_tokens_mask,
                )
            )
            sequence = TokenSequence.of(ids, types, token_count_before_truncation=count)
            starts, ends = zip(*offsets, strict=True) if offsets else ((), ())
            found.append((sequence, Spans(starts, ends, tuple(map(bool, special)))))
        return found

    def encode_expanded(
        self,
        texts: Sequence[str],
        expansion: "QueryExpansion",
        *,
        prompt: str,
        truncation: Truncation,
    ) -> list[TokenSequence]:
        """Encode as `encode` does, and pad each sequence to the expansion's length with its token."""
        token_id = self._tokenizer.token_to_id(expansion.token)
        plain_ones = self.encode(texts, prompt=prompt, truncation=truncation)
        expanded = []
        for plain in plain_ones:
            missing = max(0, expansion.length - len(plain))
            expanded.append(
                TokenSequence.of(
                    [*plain.token_ids.tolist(), *[token_id] * missing],
                    [*plain.token_type_ids.tolist(), *[0] * missing],
                    prompt_length=plain.prompt_length,
                    token_count_before_truncation=plain.token_count_before_truncation,
                    unseen=0 if expansion.attend else missing,
                )
            )
        return expanded

    def from_ids(
        self,
        token_ids: Sequence[int],
        *,
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> TokenSequence:
        """Accept token ids of the model unchanged, without adding special tokens.

        `truncation` decides whether a sequence that is too long is truncated or raises `InputTooLong`.
        Truncation treats no id as a special token. Raises `InvalidRequest` if there are no ids, or if an id
        is not a whole number within the vocabulary.
        """
        if not token_ids:
            raise InvalidRequest("`input` has no token ids. Send at least one.", field="input")
        self._check_ids(token_ids)
        count, limit = len(token_ids), self.longest(truncation)
        if count > limit:
            check_length(count, limit, truncation)
        kept = token_ids[max(0, count - limit) :] if self.keeps_end(truncation) else token_ids[:limit]
        return TokenSequence.of(list(kept), token_count_before_truncation=count)

    def split(self, texts: Sequence[str], *, special: bool) -> tuple[tuple[Token, ...], ...]:
        """Return all tokens of each text, without truncation; with `special` add special tokens."""
        encodings = [
            self.encode_one(text, input_at(index), special=special, fast=False)
            for index, text in enumerate(texts)
        ]
        return tuple(tuple(_tokens(encoding)) for encoding in encodings)

    def cut_texts(self, texts: Sequence[str], max_tokens: int) -> list[str]:
        """Cut each text after its token number `max_tokens`, special tokens not counted."""
        cut = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(text, input_at(index), special=False, fast=False)
            is_long = len(encoding) > max_tokens
            cut.append(text[: encoding.offsets[max_tokens - 1][1]] if is_long else text)
        return cut

    def join(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of token ids. Raises `InvalidRequest` for ids outside the vocabulary."""
        self._check_ids(token_ids)
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special)
        return text

    def encode_one(self, text: str, where: str, *, special: bool = True, fast: bool = True) -> Any:
        """Return the library's encoding of a text, without places if `fast`. Errors call the text `where`."""
        if not isinstance(text, str):
            raise InvalidRequest(f"{where} is not a text.", field="input")
        library = self._tokenizer
        encode = library.encode_batch_fast if fast else library.encode_batch
        try:
            return encode([text], add_special_tokens=special and self._adds_special)[0]
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRequest(
                f"{where} is not valid Unicode: it holds half of a surrogate pair. Send whole characters.",
                field="input",
            ) from error

    def _check_ids(self, token_ids: Sequence[int]) -> None:
        for position, token_id in enumerate(token_ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
                raise InvalidRequest(
                    f"`input`: the token id at position {position} is not a whole number.", field="input"
                )
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequest(
                    f"`input`: the token id at position {position} is outside this model's vocabulary, "
                    f"0 to {self._vocab_size - 1}.",
                    field="input",
                )

    def _prompt_length(self, prompt: str) -> int:
        """Count the prompt's tokens at the front of a text, as the reference implementation does."""
        ids = self._cut(self.encode_one(prompt, "The prompt").ids, self._max_tokens)
        return len(ids) - 1 if ids[-1:] and ids[-1] in self._special_ids else len(ids)

    def _types(self, encoding: Any) -> list[int]:
        types: list[int] = encoding.type_ids if self._gives_types else [0] * len(encoding)
        return types

    def _cut(self, values: list[Any], limit: int, truncation: Truncation = DEFAULT_TRUNCATION) -> list[Any]:
        """Keep the special tokens and as much of the text between them as fits."""
        excess = len(values) - limit
        if excess <= 0:
            return values
        end = len(values) - self._trailing
        if self.keeps_end(truncation):
            return values[: self._leading] + values[self._leading + excess :]
        return values[: max(end - excess, self._leading)] + values[end:]


def _tokens(encoding: Any) -> Iterator[Token]:
    """Yield the tokens of the library's encoding of a text."""
    parts = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    for token_id, piece, is_special, (start, end) in parts:
        place = (None, None) if is_special else (start, end)
        yield Token(token_id, piece, bool(is_special), *place)


def _truncates_left(tokenizer: Any, description: "ModelDescription") -> bool:
    """Return whether truncation keeps the end of a text, by the settings or by `tokenizer.json`."""
    if description.truncate_left or "truncation_side" in description.tokenizer_config:
        return description.truncate_left
    return str((tokenizer.truncation or {}).get("direction")).lower() == "left"


def input_at(index: int) -> str:
    """Return the name of input number `index` in errors. `fields_renamed` changes the name."""
    return f"`input[{index}]`"


def refuse_empty(where: str) -> NoReturn:
    """Raise `InvalidRequest` for a text or a pair without tokens, which no encoder can compute."""
    raise InvalidRequest(
        f"{where} has no tokens, and this model adds none of its own. Send a text with some content.",
        field="input",
    )


def check_length(count: int, max_tokens: int, truncation: Truncation) -> None:
    """Raise `InputTooLong` unless the request allows truncation."""
    if truncation.is_allowed:
        return
    # The wording that clients of the OpenAI API look for.
    raise InputTooLong(
        f"This model's maximum context length is {max_tokens} tokens, however you requested "
        f"{count} tokens. Please reduce your prompt; or completion length.",
        token_count=count,
        max_tokens=max_tokens,
        field="input",
    )
