"""Texts to token ids, as the model's own tokenizer cuts them. `pairs` does the same for pairs.

Source of the rules: sentence-transformers 6.2 (`Transformer.preprocess`, `_get_prompt_length`).
Texts are encoded one by one in the calling thread, each by a batch call for one text: of the
library's calls only those let go of the interpreter lock, and one text at a time bounds memory.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.models.tokenizer import read_tokenizer
from vecmill.models.tokenizer_classes import gives_token_types
from vecmill.reading import DEFAULT_TRUNCATION, Truncation
from vecmill.types import Token, TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription
    from vecmill.models.heads import QueryExpansion


@dataclass(frozen=True, slots=True)
class Spans:
    """Where the tokens of a sequence stand in their text, in characters: `starts` and `ends`, a number each.

    `is_special` marks the tokens that are not of the text.
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
        # A text becomes `leading` special tokens, its own, and `trailing` special tokens.
        mask = tokenizer.encode("a", add_special_tokens=self._adds_special).special_tokens_mask
        self._leading = mask.index(0) if 0 in mask else len(mask)
        self._trailing = sum(mask) - self._leading

    @classmethod
    def load(cls, description: "ModelDescription") -> Self:
        """Read the model's tokenizer. Raises as `read_tokenizer`."""
        # The library would spread over every core of the machine, behind the back of the core budget.
        os.putenv("TOKENIZERS_PARALLELISM", "false")
        return cls(read_tokenizer(description), description)

    @property
    def library(self) -> Any:
        """The `tokenizers.Tokenizer` inside."""
        return self._tokenizer

    def longest(self, truncation: Truncation) -> int:
        """How many tokens of a text are read."""
        asked = truncation.max_tokens
        return self._max_tokens if asked is None else min(asked, self._max_tokens)

    def keeps_end(self, truncation: Truncation) -> bool:
        """Whether the beginning of a long text is cut off, and not its end."""
        return self.truncates_left if truncation.keeps_end is None else truncation.keeps_end

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        truncation: Truncation = DEFAULT_TRUNCATION,
        field: str = "input",
    ) -> list[TokenSequence]:
        """Cut each text, with `prompt` before it, into the model's tokens, special ones included.

        A text that is too long is cut, or raises `InputTooLong`, as `truncation` says. Raises
        `InvalidRequest` for what is no Unicode text, and for one without tokens where the model adds none
        of its own. `field` is the name under which errors speak of the texts.
        """
        limit = self.longest(truncation)
        prompt_length = self._prompt_length(prompt, field) if prompt else 0
        sequences = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(prompt + text if prompt else text, f"{field}[{index}]", field)
            ids, types, count = encoding.ids, self._types(encoding), len(encoding)
            if count > limit:
                check_length(count, limit, truncation, field)
                ids, types = (self._cut(values, limit, truncation) for values in (ids, types))
            if not ids:
                if self._adds_special:
                    refuse_empty(f"{field}[{index}]", field)
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
        field: str = "input",
    ) -> list[tuple[TokenSequence, Spans]]:
        """As `encode`, with the place of each token in its text."""
        found = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(text, f"{field}[{index}]", field, fast=False)
            count, limit = len(encoding), self.longest(truncation)
            if not count:
                refuse_empty(f"{field}[{index}]", field)
            if count > limit:
                check_length(count, limit, truncation, field)
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
        field: str,
    ) -> list[TokenSequence]:
        """As `encode`, each filled up with the expansion's token to its length."""
        token_id = self._tokenizer.token_to_id(expansion.token)
        plain_ones = self.encode(texts, prompt=prompt, truncation=truncation, field=field)
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
        field: str = "input",
    ) -> TokenSequence:
        """Take the model's own token ids as they are; nothing is added.

        Too many are cut, or raise `InputTooLong`, as `truncation` says; nothing among them is special then.
        Raises `InvalidRequest` if there are none, or one is no whole number from 0 to the size of
        the vocabulary.
        """
        if not token_ids:
            raise InvalidRequest(f"`{field}` has no token ids. Send at least one.", field=field)
        self._check_ids(token_ids, field)
        count, limit = len(token_ids), self.longest(truncation)
        if count > limit:
            check_length(count, limit, truncation, field)
        kept = token_ids[max(0, count - limit) :] if self.keeps_end(truncation) else token_ids[:limit]
        return TokenSequence.of(list(kept), token_count_before_truncation=count)

    def split(self, texts: Sequence[str], *, special: bool, field: str) -> tuple[tuple[Token, ...], ...]:
        """All tokens of each text, however long; with the model's special ones if `special`."""
        encodings = [
            self.encode_one(text, f"{field}[{index}]", field, special=special, fast=False)
            for index, text in enumerate(texts)
        ]
        return tuple(tuple(_tokens(encoding)) for encoding in encodings)

    def cut_texts(self, texts: Sequence[str], max_tokens: int, *, field: str) -> list[str]:
        """Each text up to the end of its token number `max_tokens`, special tokens not counted."""
        cut = []
        for index, text in enumerate(texts):
            encoding = self.encode_one(text, f"{field}[{index}]", field, special=False, fast=False)
            is_long = len(encoding) > max_tokens
            cut.append(text[: encoding.offsets[max_tokens - 1][1]] if is_long else text)
        return cut

    def join(self, token_ids: Sequence[int], *, skip_special: bool, field: str) -> str:
        """The text that tokens spell. Raises `InvalidRequest` for ids outside the vocabulary."""
        self._check_ids(token_ids, field)
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special)
        return text

    def encode_one(
        self, text: str, where: str, field: str, *, special: bool = True, fast: bool = True
    ) -> Any:
        """The library's encoding of one text; without places if `fast`. `where` names it in errors."""
        if not isinstance(text, str):
            raise InvalidRequest(f"{where} is not a text.", field=field)
        library = self._tokenizer
        encode = library.encode_batch_fast if fast else library.encode_batch
        try:
            return encode([text], add_special_tokens=special and self._adds_special)[0]
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRequest(
                f"{where} is not valid Unicode: it holds half of a surrogate pair. Send whole characters.",
                field=field,
            ) from error

    def _check_ids(self, token_ids: Sequence[int], field: str) -> None:
        for position, token_id in enumerate(token_ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
                raise InvalidRequest(
                    f"`{field}`: the token id at position {position} is not a whole number.", field=field
                )
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequest(
                    f"`{field}`: the token id at position {position} is outside this model's vocabulary, "
                    f"0 to {self._vocab_size - 1}.",
                    field=field,
                )

    def _prompt_length(self, prompt: str, field: str) -> int:
        """Tokens that the prompt takes at the front of a text, by the reference's count."""
        ids = self._cut(self.encode_one(prompt, "the prompt", field).ids, self._max_tokens)
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
    """The tokens of the library's encoding of a text."""
    parts = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    for token_id, piece, is_special, (start, end) in parts:
        place = (None, None) if is_special else (start, end)
        yield Token(token_id, piece, bool(is_special), *place)


def _truncates_left(tokenizer: Any, description: "ModelDescription") -> bool:
    """Whether the ends of texts are kept: as the settings say, or of a training run's truncation its side."""
    if description.truncate_left or "truncation_side" in description.tokenizer_config:
        return description.truncate_left
    return str((tokenizer.truncation or {}).get("direction")).lower() == "left"


def refuse_empty(where: str, field: str) -> NoReturn:
    """Raise `InvalidRequest` for a text or a pair without tokens, of which an encoder computes nothing."""
    raise InvalidRequest(
        f"{where} has no tokens, and this model adds none of its own. Send a text with some content.",
        field=field,
    )


def check_length(count: int, max_tokens: int, truncation: Truncation, field: str) -> None:
    """Raise `InputTooLong` unless longer inputs are to be cut."""
    if truncation.is_allowed:
        return
    # The wording that clients of the OpenAI API look for.
    raise InputTooLong(
        f"This model's maximum context length is {max_tokens} tokens, however you requested "
        f"{count} tokens. Please reduce your prompt; or completion length.",
        token_count=count,
        max_tokens=max_tokens,
        field=field,
    )
