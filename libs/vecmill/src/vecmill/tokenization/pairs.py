"""Encodes pairs of texts to token ids: two sequences between special tokens, or a template.

Sources of the rules: tokenizers (`truncate_encodings`, strategy `longest_first`), which transformers'
tokenizers and `CrossEncoder` use to truncate pairs; for templates sentence-transformers 6.2
(`Transformer._restore_chat_template_suffix`, `_chat_template_suffix_ids`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from vecmill.errors import UnsupportedModel, fields_renamed
from vecmill.models.heads import JoinedTemplate, PairTemplate
from vecmill.requests import DEFAULT_TRUNCATION, TextPairOrIds, Truncation
from vecmill.tokenization.building.classes import gives_token_types
from vecmill.tokenization.chat_template import Render, compile_chat
from vecmill.tokenization.pieces import CountBudget, Known, Reading, Slices, UnreadText, complete
from vecmill.tokenization.prompts import NO_PROMPT, Prompt
from vecmill.tokenization.refusals import check_length, input_at, inputs_renumbered, refuse_empty
from vecmill.tokenization.token_lists import TokenLists
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut, make_cuts

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

Pair = tuple[str, str]

# Texts without a common token: the common suffix of the rendered texts is the end of the template.
_FILLERS = ("0", "1 2 3 4")

_ALL = (None, None)

_PLACEHOLDER = re.compile(r"\{(instruction|query|document)\}")


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of two sequences are kept so that both fit into `room`.

    The longer sequence is truncated first. If both are longer than half of `room`, each keeps half, and the
    longer sequence keeps the odd token.
    """
    if first + second <= room:
        return first, second
    shorter, longer = min(first, second), max(first, second)
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room // 2 + room % 2
    return (shorter, longer) if first <= second else (longer, shorter)


class PairTokenizer:
    """The encoder of pairs for one model. Safe for any number of threads."""

    def __init__(self, tokenizer: Tokenizer, description: "ModelDescription") -> None:
        """Raises `UnsupportedModel` if the tokenizer joins pairs in another order, or no pair can fit."""
        self._tokenizer = tokenizer
        self._max_tokens = description.max_tokens
        template = description.pair_template
        self._joined = template if isinstance(template, JoinedTemplate) else None
        self._most_characters = template.most_characters if isinstance(template, PairTemplate) else _ALL
        self._render = _choose_render(description)
        is_plain = self._render is None and self._joined is None
        self._frame = _Frame.of(tokenizer, description) if is_plain else None
        frame_tokens = self._count_frame()
        if frame_tokens >= self._max_tokens:
            raise UnsupportedModel(
                f"{description.directory}: what surrounds a pair has {frame_tokens} tokens, but the model "
                f"reads {self._max_tokens} tokens."
            )

    def encode_in_slices(
        self,
        pairs: Sequence[Pair],
        *,
        prompt: str = "",
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> Slices[list[TokenSequence]]:
        """Encode each pair to the model's token ids, special tokens included, in slices.

        `prompt` is put before the first text, or is the template's instruction. `truncation` decides whether
        a pair that is too long is truncated, the longer text first, or raises `InputTooLong`. Raises
        `InvalidRequest` for invalid Unicode, and for a pair without tokens.
        """
        if self._joined is not None:
            return (yield from self._encode_joined(self._joined, pairs, prompt, truncation))
        if self._frame is None:
            return (yield from self._encode_prose(pairs, prompt, truncation))
        sequences = []
        # The query of a rerank request comes with every document.
        queries, lengths = dict[str, TokenLists](), dict[str, int]()
        known: Known = {}
        reading = self._reading(truncation, self._frame)
        for index, (first, second) in enumerate(pairs):
            where = input_at(index)
            read = partial(self._tokenizer.read_in_slices, where=where)
            query = prompt + first
            if query not in queries:
                queries[query] = yield from read(query, reading=reading, shared=len(prompt), known=known)
            texts = (queries[query], (yield from read(second, reading=reading)))
            unread = _unread(*texts)
            counts = (len(texts[0].ids), len(texts[1].ids))
            if reading.room is not None and reading.room % 2 == 0 and min(counts) >= reading.room:
                # An odd number of tokens fits. The longer text keeps the odd token, so both texts are counted
                # to their ends.
                if query not in lengths:
                    lengths[query] = len((yield from read(query, reading=Reading())).ids)
                counts = (lengths[query], len((yield from read(second, reading=Reading())).ids))
                unread = ()
            ids = (texts[0].ids, texts[1].ids)
            sequences.append(self._join(ids, counts, unread, self._frame, truncation, where))
        return sequences

    def _reading(self, truncation: Truncation, frame: "_Frame") -> Reading:
        """Return how much to read of each text of a pair: all of it if its tokens must be counted.

        One token more than fits tells whether the pair is truncated.
        """
        if truncation.is_refused:
            return Reading()
        room = max(0, self._tokenizer.longest(truncation) - frame.tokens)
        budget = self._tokenizer.make_budget()
        return Reading(room + 1, self._tokenizer.keeps_end(truncation), budget=budget)

    def _join(
        self,
        ids: tuple[list[int], list[int]],
        counts: tuple[int, int],
        unread: Sequence[UnreadText],
        frame: "_Frame",
        truncation: Truncation,
        where: str,
    ) -> TokenSequence:
        """Join two texts of `counts` tokens, and of those that are `unread`.

        `ids` are all tokens of each text, or as many as may be kept.
        """
        limit = self._tokenizer.longest(truncation)
        count = sum(counts) + frame.tokens
        if not count:
            refuse_empty(where)
        if count > limit:
            check_length(count, limit, truncation, where)
            kept = longest_first(*counts, max(0, limit - frame.tokens))
            ids = (
                self._keep(ids[0], kept[0], truncation),
                self._keep(ids[1], kept[1], truncation),
            )
        kept_count = sum(map(len, ids)) + frame.tokens
        return frame.fill(*ids, cuts=make_cuts(count - kept_count, unread) if count > limit else ())

    def _keep(self, ids: list[int], count: int, truncation: Truncation) -> list[int]:
        return ids[len(ids) - count :] if self._tokenizer.keeps_end(truncation) else ids[:count]

    def _encode_joined(
        self, template: JoinedTemplate, pairs: Sequence[Pair], prompt: str, truncation: Truncation
    ) -> Slices[list[TokenSequence]]:
        instruction = prompt or template.instruction
        frame = yield from self._frame_of(template, instruction)
        limit = self._tokenizer.longest(truncation)
        if frame.tokens > limit:
            check_length(frame.tokens, limit, replace(truncation, is_allowed=False), "`instruction`")
        query_room, room = frame.rooms(template, limit)
        reading = self._reading(truncation, frame)
        queries: dict[str, TokenLists] = {}  # the query of a rerank request comes with every document
        sequences = []
        for index, (query, document) in enumerate(pairs):
            read = partial(self._tokenizer.read_in_slices, where=input_at(index), reading=reading)
            if query not in queries:
                queries[query] = yield from read(_fill_query(template, instruction, query))
            texts = (queries[query], (yield from read(_fill(template.document, {"document": document}))))
            ids, others = texts[0].ids, texts[1].ids
            count = len(ids) + len(others)
            is_long = len(ids) > query_room or count > room
            if is_long:
                check_length(count + frame.tokens, room + frame.tokens, truncation, input_at(index))
                ids = self._keep(ids, min(len(ids), query_room), truncation)
                others = self._keep(others, min(len(others), room - len(ids)), truncation)
            cuts = make_cuts(count - len(ids) - len(others), _unread(*texts))
            sequences.append(frame.fill(ids, others, cuts=cuts))
        return sequences

    def _frame_of(self, template: JoinedTemplate, instruction: str) -> Slices["_Frame"]:
        """Return the token ids of the parts around and between a query and a document."""
        parts = []
        for texts in (template.start, (template.between,), template.end):
            ids: list[int] = []
            for text in texts:
                filled = _fill(text, {"instruction": instruction})
                read = yield from self._tokenizer.read_in_slices(filled, "The template", Reading())
                ids += read.ids
            parts.append(ids)
        return _Frame(parts, [[0] * len(ids) for ids in parts], (0, 0))

    def _count_frame(self) -> int:
        """Return the number of tokens that surround the texts of a pair, with the default instruction."""
        if self._joined is not None:
            return complete(self._frame_of(self._joined, self._joined.instruction)).tokens
        return self._count(self._rendered("")) if self._frame is None else self._frame.tokens

    def _encode_prose(
        self, pairs: Sequence[Pair], prompt: str, truncation: Truncation
    ) -> Slices[list[TokenSequence]]:
        limit, end = self._tokenizer.longest(truncation), None
        # One token more than fits tells whether a text is too long.
        room, budget = None if truncation.is_refused else limit + 1, self._tokenizer.make_budget()
        reading = Reading(room, self._tokenizer.keeps_end(truncation), budget=budget)
        sequences = []
        before, shared, known = "", 0, Known()
        for index, pair in enumerate(pairs):
            query, document = pair if truncation.is_refused else self._shorten(pair)
            text = self._rendered(prompt, query, document)
            # A template and a query that all pairs begin with are tokenised once.
            common = _common_length(before, text)
            shared = min(shared, common) if index > 1 else common
            tokens = yield from self._tokenizer.read_in_slices(
                text, input_at(index), reading, shared=shared, known=known
            )
            ids = tokens.ids
            before, count = text, len(ids)
            if count > limit:
                check_length(count, limit, truncation, input_at(index))
                if end is None:
                    end = yield from self._find_end(prompt)
                ids = self._keep(ids, limit, truncation)[: max(0, limit - len(end))] + end
            if (query, document) == pair:
                cuts = make_cuts(count - len(ids), tokens.parts_unread)
            else:
                cuts = self._cuts_of_whole(self._rendered(prompt, *pair), len(ids), budget)
            sequences.append(TokenSequence.of(ids, cuts=cuts))
        return sequences

    def _cuts_of_whole(self, text: str, kept: int, budget: CountBudget) -> tuple[TextCut, ...]:
        """Return the cut of a rendered text that was shortened before it was read: all but `kept` tokens."""
        whole = self._tokenizer.leave_unread(text, budget)
        return (TextCut(0, is_exact=False),) if whole is None else (TextCut(-kept, (whole,)),)

    def _shorten(self, pair: Pair) -> Pair:
        """Return as many characters of both texts as the model's program reads."""
        query, document = (text[:most] for text, most in zip(pair, self._most_characters, strict=True))
        return query, document

    def _count(self, text: str) -> int:
        return len(complete(self._tokenizer.read_in_slices(text, "The template", Reading())).ids)

    def _rendered(self, prompt: str, query: str = "", document: str = "") -> str:
        assert self._render is not None
        return self._render(prompt, query, document)

    def _find_end(self, prompt: str) -> Slices[list[int]]:
        """Return the tokens that end the rendered text of every pair."""
        reading = Reading(self._max_tokens, from_end=True)
        found = []
        for text in _FILLERS:
            rendered = self._rendered(prompt, text, text)
            read = yield from self._tokenizer.read_in_slices(rendered, "The template", reading)
            found.append(read.ids)
        one, other = found
        same = [mine == yours for mine, yours in zip(reversed(one), reversed(other), strict=False)]
        all_same = self._max_tokens if len(same) >= self._max_tokens else 0
        count = min(same.index(False) if False in same else all_same, self._max_tokens)
        return one[len(one) - count :]


def _unread(*texts: TokenLists) -> tuple[UnreadText, ...]:
    return tuple(part for text in texts for part in text.parts_unread)


def _common_length(one: str, other: str) -> int:
    """Return the length of the shared prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _choose_render(description: "ModelDescription") -> Render | None:
    """Return the function that renders a pair with a template, or `None` for models that read two texts."""
    if description.chat_template is not None:
        return compile_chat(description.chat_template)
    template = description.pair_template
    return partial(_render, template) if isinstance(template, PairTemplate) else None


def _render(template: PairTemplate, instruction: str, query: str, document: str) -> str:
    if template.strips:
        query, document = query.strip(), document.strip()
    values = {"instruction": instruction or template.instruction, "query": query, "document": document}
    return template.start + _fill(template.body, values) + template.end


def _fill_query(template: JoinedTemplate, instruction: str, query: str) -> str:
    text = template.query
    if instruction and template.instructed_query is not None:
        text = template.instructed_query
    return _fill(text, {"instruction": instruction, "query": query})


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace all placeholders in one pass, so that a placeholder inside a value is not replaced."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


class _Frame:
    """The special tokens around and between two texts, and all token types."""

    def __init__(
        self, parts: Sequence[list[int]], types: Sequence[list[int]], text_types: Sequence[int]
    ) -> None:
        self._before, self._between, self._after = parts
        self._types_before, self._types_between, self._types_after = types
        self._first_type, self._second_type = text_types
        self.tokens = sum(map(len, parts))

    def rooms(self, template: JoinedTemplate, limit: int) -> tuple[int, int]:
        """Return the most tokens of a query, and of a query and its document, if `limit` are read in all."""
        counted = len(self._between) + (len(self._before) if template.counts_start else 0)
        longest = min(template.longest, limit - self.tokens + counted)
        room = max(0, longest - counted)
        return min(longest * 3 // 4, room), room

    @classmethod
    def of(cls, tokenizer: Tokenizer, description: "ModelDescription") -> Self:
        (encoding,) = tokenizer.library.encode_batch([("a", "a")])
        owners, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
        if not gives_token_types(description.tokenizer_config, description.config):
            types = [0] * len(ids)
        starts = [owners.index(owner) if owner in owners else -1 for owner in (0, 1)]
        ends = [start + owners.count(owner) for owner, start in enumerate(starts)]
        is_plain = 0 <= starts[0] < ends[0] <= starts[1] < ends[1]
        if not is_plain or any(owner is not None for owner in owners[ends[0] : starts[1]]):
            raise UnsupportedModel(
                f"{description.tokenizer_file}: pairs are not put together as one text after the other, "
                "which is the only order supported."
            )
        cuts = (slice(0, starts[0]), slice(ends[0], starts[1]), slice(ends[1], None))
        return cls(
            [ids[cut] for cut in cuts],
            [types[cut] for cut in cuts],
            [types[start] for start in starts],
        )

    def fill(self, first: list[int], second: list[int], *, cuts: tuple[TextCut, ...]) -> TokenSequence:
        ids = [*self._before, *first, *self._between, *second, *self._after]
        types = [
            *self._types_before,
            *[self._first_type] * len(first),
            *self._types_between,
            *[self._second_type] * len(second),
            *self._types_after,
        ]
        return TokenSequence.of(ids, types, cuts=cuts)


def encode_inputs(
    tokenizer: Tokenizer,
    pairs: PairTokenizer | None,
    inputs: Sequence[TextPairOrIds],
    *,
    prompt: Prompt = NO_PROMPT,
    truncation: Truncation = DEFAULT_TRUNCATION,
) -> Slices[list[TokenSequence]]:
    """Encode texts, pairs and token ids in slices, in order.

    `pairs` may be `None` if there are no pairs. Token ids get no prompt and no special tokens, but the
    adapter that goes with the prompt.
    """
    texts = {index: item for index, item in enumerate(inputs) if isinstance(item, str)}
    with inputs_renumbered([*texts]):
        sequences = yield from tokenizer.encode_in_slices(
            [*texts.values()], prompt=prompt.text, adapter=prompt.adapter, truncation=truncation
        )
    found = dict(zip(texts, sequences, strict=True))
    together = {index: cast(Pair, item) for index, item in enumerate(inputs) if _is_pair(item)}
    if together:
        assert pairs is not None, "the model reads no pairs"
        with inputs_renumbered([*together]):
            sequences = yield from pairs.encode_in_slices(
                [*together.values()], prompt=prompt.text, truncation=truncation
            )
        found |= zip(together, sequences, strict=True)
    for index in [index for index in range(len(inputs)) if index not in found]:
        token_ids = cast(tuple[int, ...], inputs[index])
        yield len(token_ids)
        with fields_renamed(input=f"input[{index}]"):
            found[index] = tokenizer.from_ids(token_ids, truncation=truncation, adapter=prompt.adapter)
    return [found[index] for index in range(len(inputs))]


def _is_pair(item: TextPairOrIds) -> bool:
    return not isinstance(item, str) and bool(item) and isinstance(item[0], str)
