"""Encodes texts to token ids, as the model's own tokenizer does. `pairs` does the same for pairs.

Texts are encoded one by one in the calling thread, long texts piece by piece, which bounds memory. Each
piece is a batch of one, because only the library's batch calls release the interpreter lock. A short text
that is wanted at once (`pieces`) is encoded with the lock, if no pattern of the tokenizer may take long.
Functions whose names end in `_in_slices` are generators that stop before each piece.

Source of the rules: sentence-transformers 6.2 (`Transformer.preprocess`, `_get_prompt_length`).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from vecmill.errors import InvalidRequest
from vecmill.models.directory import load_failures
from vecmill.requests import DEFAULT_TRUNCATION, Truncation
from vecmill.tokenization.boundaries import Boundaries, has_quick_patterns
from vecmill.tokenization.building.classes import gives_token_types
from vecmill.tokenization.library_calls import LibraryCalls
from vecmill.tokenization.pieces import (
    MOST_COUNTED,
    CountBudget,
    Known,
    PieceReader,
    Reading,
    SliceMode,
    Slices,
    UnreadText,
    complete,
    refuse_unbroken,
)
from vecmill.tokenization.refusals import (
    check_length,
    check_text,
    check_token_ids,
    input_at,
    refuse_empty,
    unicode_required,
)
from vecmill.tokenization.shared import LoadedTokenizer, SharedTokenizers
from vecmill.tokenization.table_rows import RowlessTokens, check_special
from vecmill.tokenization.token_lists import Spans, SpecialTokens, TokenLists
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut, make_cuts
from vecmill.values.interruptions import INTERRUPTIONS

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


_UNKNOWN = "\U00010380"  # a letter of Ugaritic, which few vocabularies have

# A text of at most this many bytes is read in 0.05 to 0.15 ms. So long may other threads wait for the lock.
_SHORT_BYTES = 256
# What a character outside ASCII may count. Those of three bytes are nearly a token each.
_BYTES_PER_CHARACTER = 3


@dataclass(frozen=True, slots=True)
class TextRules:
    """How texts are encoded: the prompt before each text and the number of its tokens, and the truncation.

    `adapter` is the number of the prompt's adapter, which are the token types; `limit` is the longest input.
    """

    prompt: str
    prompt_length: int
    adapter: int
    truncation: Truncation
    limit: int


class Tokenizer:
    """The tokenizer of one model. Safe for any number of threads."""

    def __init__(
        self, loaded: LoadedTokenizer, description: "ModelDescription", most_counted: int = MOST_COUNTED
    ) -> None:
        """`most_counted` characters of texts that are encoded together are kept to be counted."""
        self._most_counted = most_counted
        self.truncates_left = description.truncate_left
        if "truncation_side" not in description.tokenizer_config:
            self.truncates_left |= loaded.truncates_left
        self.highest_id = loaded.highest_id
        self._loaded = loaded
        tokenizer = self._tokenizer = loaded.library
        self._calls = LibraryCalls(tokenizer)
        self.max_tokens = description.max_tokens
        self._vocab_size = description.vocab_size
        self._adds_special = description.special_tokens
        self._gives_types = gives_token_types(description.tokenizer_config, description.config)
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._rowless = RowlessTokens.of(tokenizer, loaded.highest_id, description.vocab_size)
        # An encoded text is `leading` special tokens, the tokens of the text, and `trailing` special tokens.
        # The second fails without a token for unknown words.
        framed, _ = tokenizer.encode_batch(["a", _UNKNOWN], add_special_tokens=self._adds_special)
        mask = framed.special_tokens_mask
        self._leading = mask.index(0) if 0 in mask else len(mask)
        self._trailing = sum(mask) - self._leading
        tokens = TokenLists.of(framed, self._types(framed), places=True)
        check_special(tokens.ids, tokens.types, description)
        self.special = SpecialTokens.of(tokens, self._leading, self._trailing)
        boundaries = Boundaries.of(tokenizer) if 0 in mask else None
        self._pieces = None if boundaries is None else PieceReader(self._encode_part, boundaries)
        self._may_keep_lock = has_quick_patterns(tokenizer)

    @classmethod
    def load(
        cls,
        description: "ModelDescription",
        shared: SharedTokenizers | None = None,
        *,
        most_counted: int = MOST_COUNTED,
    ) -> Self:
        """Read the model's tokenizer, or take that of another model from `shared`.

        Raises the errors of `read_tokenizer`, and `LoadFailed`.
        """
        # The library would use every core of the machine and ignore the core budget.
        os.putenv("TOKENIZERS_PARALLELISM", "false")
        with load_failures(description.tokenizer_file):
            read = LoadedTokenizer.read if shared is None else shared.read
            return cls(read(description), description, most_counted)

    @property
    def library(self) -> Any:
        """The wrapped `tokenizers.Tokenizer`."""
        return self._tokenizer

    @property
    def stand_in(self) -> int | None:
        """The token of an empty text, `None` if the model adds special tokens."""
        return None if self._adds_special else self._vocab_size

    def longest(self, truncation: Truncation) -> int:
        """Return the longest input under `truncation`, in tokens."""
        asked = truncation.max_tokens
        return self.max_tokens if asked is None else min(asked, self.max_tokens)

    def keeps_end(self, truncation: Truncation) -> bool:
        """Return whether truncation cuts off the beginning of a text instead of its end."""
        return self.truncates_left if truncation.keeps_end is None else truncation.keeps_end

    def most_read(self, truncation: Truncation) -> int | None:
        """Return how many characters of a text are usually read at most, `None` if texts are read whole."""
        reading = self._reading(truncation)
        return None if self._pieces is None or reading.room is None else 2 * reading.piece

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        adapter: int = 0,
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> list[TokenSequence]:
        """Encode each text, with `prompt` before it, to the model's token ids, special tokens included.

        The token types are the number of the `adapter` that goes with the prompt, if there is one.
        `truncation` decides whether a text that is too long is truncated or raises `InputTooLong`. Raises
        `InvalidRequest` for invalid Unicode, and for a text without tokens if the model adds no special
        tokens. Raises `TokenizationFailed` if the library fails.
        """
        work = self.encode_in_slices(texts, prompt=prompt, adapter=adapter, truncation=truncation)
        return complete(work)

    def encode_in_slices(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        adapter: int = 0,
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> Slices[list[TokenSequence]]:
        """Do the work of `encode` in slices."""
        reading = self._reading(truncation)
        prompt_length = (yield from self.prompt_length_in_slices(prompt)) if prompt else 0
        rules = TextRules(prompt, prompt_length, adapter, truncation, self.longest(truncation))
        sequences = []
        known: Known | None = {} if prompt and len(texts) > 1 else None
        for index, text in enumerate(texts):
            where = input_at(index)
            check_text(text, where)
            whole = prompt + text if prompt else text
            tokens = yield from self.read_in_slices(
                whole, where, reading, special=True, shared=len(prompt), known=known
            )
            unread = tokens.parts_unread
            sequences.append(self._sequence(tokens.ids, tokens.types, unread, index, rules))
        return sequences

    def encode_short(self, texts: Sequence[str], rules: TextRules) -> list[TokenSequence]:
        """Encode short texts at once, as `encode` does. They are read whole, by one call of the library.

        Raises the same errors.
        """
        prompt, special = rules.prompt, self._adds_special
        wholes = [prompt + text for text in texts] if prompt else texts
        try:
            if self._may_keep_lock and is_short("".join(wholes)):
                encodings = list(map(partial(self._tokenizer.encode, add_special_tokens=special), wholes))
            else:
                encodings = self._tokenizer.encode_batch_fast(wholes, add_special_tokens=special)
        except INTERRUPTIONS:
            raise
        except BaseException:  # the text that fails raises it again, and is named by its number
            encodings = [self.encode_one(text, input_at(index)) for index, text in enumerate(wholes)]
        sequences = []
        for index, encoding in enumerate(encodings):
            ids = encoding.ids
            types = encoding.type_ids if self._gives_types else ()
            if self._rowless.texts:
                self._rowless.refuse(ids, input_at(index))
            sequences.append(self._sequence(ids, types, (), index, rules))
        return sequences

    def _sequence(
        self, ids: list[int], types: Sequence[int], unread: Sequence[UnreadText], index: int, rules: TextRules
    ) -> TokenSequence:
        """Return the sequence of the input of this number, cut to the longest input.

        No `types` are token types of 0.
        """
        cuts: tuple[TextCut, ...] = ()
        count, limit = len(ids), rules.limit
        if count > limit:
            check_length(count, limit, rules.truncation, input_at(index))
            ids = self._cut(ids, limit, rules.truncation)
            types = self._cut(list(types), limit, rules.truncation) if types else types
            cuts = make_cuts(count - len(ids), unread)
        if not ids:
            if self._adds_special:
                refuse_empty(input_at(index))
            # Tables have a row for this.
            empty = TokenSequence.of([self._vocab_size], [rules.adapter], cuts=cuts)
            return replace(empty, is_empty=True)
        if rules.adapter:
            types = [rules.adapter] * len(ids)
        return TokenSequence.of(ids, types, prompt_length=min(rules.prompt_length, len(ids)), cuts=cuts)

    def encode_with_spans_in_slices(
        self,
        texts: Sequence[str],
        *,
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> Slices[list[tuple[TokenSequence, Spans]]]:
        """Do the work of `encode` in slices. Return also the place of each token in its text."""
        found = []
        limit, reading = self.longest(truncation), self._reading(truncation, places=True)
        for index, text in enumerate(texts):
            tokens = yield from self.read_in_slices(text, input_at(index), reading, special=True)
            count = len(tokens.ids)
            if not count:
                refuse_empty(input_at(index))
            if count > limit:
                check_length(count, limit, truncation, input_at(index))
            ids, types, starts, ends, special = (
                self._cut(values, limit, truncation)
                for values in (
                    tokens.ids,
                    tokens.types,
                    tokens.offsets[:, 0].tolist(),
                    tokens.offsets[:, 1].tolist(),
                    tokens.is_special,
                )
            )
            spans = Spans(tuple(starts), tuple(ends), tuple(map(bool, special)))
            cuts = make_cuts(count - len(ids), tokens.parts_unread)
            found.append((TokenSequence.of(ids, types, cuts=cuts), spans))
        return found

    def from_ids(
        self,
        token_ids: Sequence[int],
        *,
        truncation: Truncation = DEFAULT_TRUNCATION,
        adapter: int = 0,
    ) -> TokenSequence:
        """Accept token ids of the model unchanged, without adding special tokens.

        `adapter` is the number of the model's adapter for them.
        `truncation` decides whether a sequence that is too long is truncated or raises `InputTooLong`.
        Truncation treats no id as a special token. Raises `InvalidRequest` if there are no ids, or if an id
        is not a whole number within the vocabulary.
        """
        if not token_ids:
            raise InvalidRequest("`input` has no token ids. Send at least one.", field="input")
        check_token_ids(token_ids, self._vocab_size)
        count, limit = len(token_ids), self.longest(truncation)
        if count > limit:
            check_length(count, limit, truncation, "`input`")
        kept = token_ids[max(0, count - limit) :] if self.keeps_end(truncation) else token_ids[:limit]
        types = [adapter] * len(kept) if adapter else None
        return TokenSequence.of(list(kept), types, cuts=make_cuts(count - len(kept)))

    def read_in_slices(
        self,
        text: str,
        where: str,
        reading: Reading,
        *,
        special: bool = False,
        shared: int = 0,
        known: Known | None = None,
    ) -> Slices[TokenLists]:
        """Return at least the tokens that `reading` asks for, between special tokens if `special`.

        The part that was not read is returned too, if `reading` has a budget. The first `shared` characters
        may be the same in other texts, for which `known` keeps their tokens.
        """
        check_text(text, where)
        if self._pieces is None or not self._pieces.are_worth_it(text, reading, shared, known):
            with unicode_required(where):
                yield from refuse_unbroken(self._encode_part, text, 0, len(text))
            mode = yield len(text)
            keeps_lock = self._may_keep_lock and mode is SliceMode.AT_ONCE and is_short(text)
            encoding = self.encode_one(
                text, where, special=special, fast=not reading.places, keeps_lock=keeps_lock
            )
            tokens = TokenLists.of(encoding, self._types(encoding), reading.places)
            self._rowless.refuse(tokens.ids, where)
            return tokens
        with unicode_required(where):
            body = yield from self._pieces.read(text, reading, shared, known)
            if reading.room is not None and not text.isascii():
                text.encode()  # the part that was not read must be valid too
        self._rowless.refuse(body.ids, where)
        return self.special.around(body, places=reading.places) if special else TokenLists.inside(body)

    def make_budget(self) -> CountBudget:
        """Return the budget of the texts that are encoded together, for the parts that are not read."""
        return CountBudget(self._most_counted)

    def leave_unread(self, text: str, budget: CountBudget) -> UnreadText | None:
        """Keep all of a text to be counted; `None` if it has no boundaries."""
        return None if self._pieces is None else budget.take(self._pieces, text, 0, len(text))

    def join(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of token ids. Raises `InvalidRequest` for ids outside the vocabulary."""
        check_token_ids(token_ids, self._vocab_size)
        return self._calls.decode(token_ids, skip_special=skip_special)

    def encode_one(
        self, text: str, where: str, *, special: bool = True, fast: bool = True, keeps_lock: bool = False
    ) -> Any:
        """Return the library's encoding of a text, without places if `fast`. Errors call the text `where`.

        With `keeps_lock`, no other thread can run meanwhile; see `is_short`.
        """
        check_text(text, where)
        special = special and self._adds_special
        with unicode_required(where):
            return self._calls.encode(text, special=special, places=not fast, keeps_lock=keeps_lock)

    def _encode_part(self, text: str, places: bool) -> Any:
        return self._calls.encode(text, special=False, places=places)

    def _reading(self, truncation: Truncation, *, places: bool = False) -> Reading:
        """Return how much of a text to read: all of it if its tokens must be counted.

        One token more than fits tells whether the text is truncated.
        """
        if truncation.is_refused:
            return Reading(places=places)
        room = max(0, self.longest(truncation) - self._leading - self._trailing)
        return Reading(room + 1, self.keeps_end(truncation), places, self.make_budget())

    def prompt_length_in_slices(self, prompt: str) -> Slices[int]:
        """Count the prompt's tokens at the front of a text, as the reference implementation does."""
        tokens = yield from self.read_in_slices(
            prompt, "The prompt", self._reading(DEFAULT_TRUNCATION), special=True
        )
        ids = self._cut(tokens.ids, self.max_tokens)
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


def is_short(text: str) -> bool:
    """Return whether a text that is wanted at once may be read with the interpreter lock."""
    return len(text) * (1 if text.isascii() else _BYTES_PER_CHARACTER) <= _SHORT_BYTES
