"""Encodes a query and its documents for a listwise reranker: to one text, or several. Finds their vectors.

Source of the rules: `rerank` and `format_docs_prompts_func` of `modeling.py` in the repository of
jina-reranker-v3; Wang, Li and Xiao 2025, arXiv:2509.25085.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vecmill.errors import InvalidRequest, UnsupportedModel, fields_renamed
from vecmill.requests import DEFAULT_TRUNCATION, Truncation
from vecmill.tokenization.pieces import CountBudget, Reading, Slices, complete
from vecmill.tokenization.refusals import check_length, input_at
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut, make_cuts

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_NO_TRUNCATION = Truncation(is_allowed=False)

# Two texts side by side rarely have more tokens than each alone.
_MARGIN = 2

_PLACEHOLDER = re.compile(r"\{(count|query|instruction|index|document)\}")


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as the model reads it, the number of its tokens, and what was cut off.

    The cut has the number of the text among the inputs of the request.
    """

    text: str
    tokens: int
    cuts: tuple[TextCut, ...] = ()


@dataclass(slots=True)
class _Block:
    """Documents that share an input. `room` is what they may still take by the published rule.

    `tokens` is at least what the whole input has.
    """

    room: int
    tokens: int
    documents: list[_Text] = field(default_factory=list)

    def add(self, document: _Text, frame: int) -> None:
        self.documents.append(document)
        self.room -= document.tokens
        self.tokens += document.tokens + frame


class ListwiseTokenizer:
    """The encoder of lists for one model. Safe for any number of threads."""

    def __init__(self, tokenizer: Tokenizer, description: "ModelDescription") -> None:
        """Raises `UnsupportedModel` if the tokenizer has no marks, or one long document does not fit."""
        template = description.list_template
        assert template is not None
        self._tokenizer = tokenizer
        self._template = template
        self._max_tokens = description.max_tokens
        self._document_mark, self._query_mark = (
            _find_mark(tokenizer, description, mark) for mark in (template.document_mark, template.query_mark)
        )
        longest = _fill(template.document, {"index": template.most_documents})
        self._document_frame = complete(self._count(longest)) + _MARGIN
        needed = complete(self._count_frame("")) + 2 * template.query_tokens
        needed += template.document_tokens + self._document_frame
        if needed > self._max_tokens:
            raise UnsupportedModel(
                f"{description.directory}: a query with one document may have {needed} tokens, but the model "
                f"reads {self._max_tokens} tokens."
            )

    def encode_in_slices(
        self,
        query: str,
        documents: Sequence[str],
        *,
        instruction: str = "",
        truncation: Truncation = DEFAULT_TRUNCATION,
    ) -> Slices[list[TokenSequence]]:
        """Encode a query with its documents to as few sequences as hold them, in slices.

        A sequence holds consecutive documents: at most `most_documents`, and as many as fit into the model.
        `truncation` decides whether a query or a document that is too long is truncated or raises
        `InputTooLong`; its `max_tokens` are those of each. Cuts have the numbers of the documents; that of
        the query, in the first sequence, has the next number. Raises `InvalidRequest` for invalid Unicode.
        """
        template, budget = self._template, self._tokenizer.make_budget()
        with fields_renamed(input="query"):
            asked = yield from self._read(query, template.query_tokens, truncation, input_at(0), budget)
        asked = _numbered(asked, len(documents))
        instruction = self._clean(instruction)
        frame = (yield from self._count_frame(instruction)) + 2 * asked.tokens
        block, sequences = _Block(self._max_tokens - 2 * asked.tokens, frame), []
        for index, document in enumerate(documents):
            where, most = input_at(index), template.document_tokens
            text = _numbered((yield from self._read(document, most, truncation, where, budget)), index)
            if self._is_full(block, text):
                sequences.append((yield from self._join(asked, block, instruction)))
                asked = replace(asked, cuts=())
                block = _Block(self._max_tokens - 2 * asked.tokens, frame)
            block.add(text, self._document_frame)
        if block.documents:
            sequences.append((yield from self._join(asked, block, instruction)))
        return sequences

    def _is_full(self, block: _Block, document: _Text) -> bool:
        """Return whether `document` begins another block: by the published rule, or because it must."""
        template, tokens = self._template, block.tokens + document.tokens + self._document_frame
        return bool(block.documents) and (
            len(block.documents) >= template.most_documents
            or block.room <= template.document_tokens
            or tokens > self._max_tokens
        )

    def split_rows(self, sequence: TokenSequence, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the vectors of the query, (dim,), and of the documents, (documents, dim), in order.

        `rows` (tokens, dim) are the outputs for the tokens of the sequence.
        """
        query = rows[sequence.token_ids == self._query_mark][0]
        return query, rows[sequence.token_ids == self._document_mark]

    def _read(
        self, text: str, most: int, truncation: Truncation, where: str, budget: CountBudget
    ) -> Slices[_Text]:
        """Return a text without marks, cut to `most` tokens, or to those that the request allows."""
        limit = truncation.within(most).max_tokens or most
        from_end = self._tokenizer.keeps_end(truncation)
        reading = Reading() if truncation.is_refused else Reading(limit + 1, from_end, budget=budget)
        tokens = yield from self._tokenizer.read_in_slices(text, where, reading)
        ids = tokens.ids
        if len(ids) <= limit:
            return _Text(self._clean(text), len(ids))
        check_length(len(ids), limit, truncation, where)
        kept = ids[len(ids) - limit :] if from_end else ids[:limit]
        yield limit
        cuts = make_cuts(len(ids) - limit, tokens.parts_unread)
        return _Text(self._clean(self._tokenizer.join(kept, skip_special=False)), limit, cuts)

    def _clean(self, text: str) -> str:
        """Remove marks, which would be taken for those of the template."""
        marks = (self._template.query_mark, self._template.document_mark)
        for mark in marks:
            text = text.replace(mark, "")
        for mark in marks:  # that the removal of another has joined
            text = text.replace(mark, f"{mark[:1]} {mark[1:]}")
        return text

    def _join(self, query: _Text, block: _Block, instruction: str) -> Slices[TokenSequence]:
        text = self._render(query.text, [document.text for document in block.documents], instruction)
        ids = (yield from self._tokenizer.read_in_slices(text, "The list", Reading())).ids
        marks = (ids.count(self._query_mark), ids.count(self._document_mark))
        if marks != (1, len(block.documents)):
            raise InvalidRequest("`documents` or the query hold tokens of the model that end a document.")
        if len(ids) > self._max_tokens:
            check_length(len(ids), self._max_tokens, _NO_TRUNCATION, "the query with `documents`")
        cuts = [cut for text in (*block.documents, query) for cut in text.cuts]
        return TokenSequence.of(ids, cuts=tuple(cuts))

    def _render(self, query: str, documents: Sequence[str], instruction: str) -> str:
        template, values = self._template, {"query": query, "count": len(documents)}
        parts = [_fill(template.start, values)]
        if instruction:
            parts.append(_fill(template.instruction, {"instruction": instruction}))
        parts += [
            _fill(template.document, {"index": index, "document": document})
            for index, document in enumerate(documents)
        ]
        return "".join([*parts, _fill(template.end, values)])

    def _count_frame(self, instruction: str) -> Slices[int]:
        """Return at least the number of tokens around the query and the documents."""
        return (yield from self._count(self._render("", [], instruction))) + 2 * _MARGIN

    def _count(self, text: str) -> Slices[int]:
        return len((yield from self._tokenizer.read_in_slices(text, "The template", Reading())).ids)


def _numbered(text: _Text, index: int) -> _Text:
    return replace(text, cuts=tuple(replace(cut, index=index) for cut in text.cuts))


def _find_mark(tokenizer: Tokenizer, description: "ModelDescription", mark: str) -> int:
    found = tokenizer.library.token_to_id(mark)
    if found is None or found >= description.vocab_size:
        raise UnsupportedModel(
            f"{description.tokenizer_file} has no token {mark!r} below vocab_size, at which a model of this "
            "kind compares a query and its documents."
        )
    return int(found)


def _fill(text: str, values: Mapping[str, object]) -> str:
    """Replace all placeholders in one pass, so that a placeholder inside a value is not replaced."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], "")), text)
