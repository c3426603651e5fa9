"""A sequence tells whether its text was cut, also where the text is read only as far as the model reads."""

import dataclasses
from collections.abc import Callable

import pytest

from support.scales import in_turns
from vecmill.directory_layouts import describe_model
from vecmill.models import ModelDescription, locate_model
from vecmill.models.heads import PairTemplate, QueryExpansion
from vecmill.requests import Truncation
from vecmill.tokenization import pieces
from vecmill.tokenization.late_interaction import encode_expanded_in_slices
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.prompts import NO_PROMPT
from vecmill.tokenization.tokenizer import Tokenizer

# Text after the last token, which no model reads: it is not cut off, however long it is.
EMPTY_ENDS = ("", " ", "\n" * 30, " " * 20_000)


@pytest.fixture(params=["whole", "in pieces"])
def read_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in pieces":
        monkeypatch.setattr(pieces, "LONGEST_PIECE", 20)
        monkeypatch.setattr(pieces, "SHORTEST_PIECE", 8)


def describe(max_tokens: int, *, left: bool = False) -> ModelDescription:
    return dataclasses.replace(
        describe_model(locate_model()), max_tokens=max_tokens, truncate_left=left, pair_template=None
    )


def words(count: int, end: str = "", *, left: bool = False) -> str:
    text = " ".join(["cat"] * count)
    return end + text if left else text + end


@pytest.mark.usefixtures("read_as")
@pytest.mark.parametrize(
    ("end", "left"),
    in_turns(EMPTY_ENDS, [False, True]),
    ids=lambda it: len(it) if isinstance(it, str) else it,
)
def test_a_text_is_cut_if_it_has_a_token_too_many(left: bool, end: str) -> None:
    tokenizer = Tokenizer.load(describe(12, left=left))
    texts = [words(count, end, left=left) for count in (0, 1, 9, 10, 11, 12, 100, 3_000)]
    expected = [False, False, False, False, True, True, True, True]
    assert [one.is_truncated for one in tokenizer.encode(texts)] == expected
    assert [one.is_truncated for one, _ in complete(tokenizer.encode_with_spans_in_slices(texts))] == expected
    prompted = tokenizer.encode([words(count, end, left=left) for count in (8, 9)], prompt="a dog ")
    assert [one.is_truncated for one in prompted] == [False, True]


@pytest.mark.usefixtures("read_as")
@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_the_limit_of_a_request_counts(limit: int) -> None:
    tokenizer = Tokenizer.load(describe(64))
    fits = max(0, limit - 2)
    sequences = tokenizer.encode(
        [words(fits), words(fits + 1), words(500)], truncation=Truncation(max_tokens=limit)
    )
    assert [one.is_truncated for one in sequences] == [False, True, True]


def test_token_ids_count_too() -> None:
    tokenizer = Tokenizer.load(describe(4))
    assert [tokenizer.from_ids([5] * count).is_truncated for count in (4, 5)] == [False, True]


@pytest.mark.usefixtures("read_as")
def test_a_padded_query_is_cut_if_its_text_is() -> None:
    tokenizer = Tokenizer.load(describe(64))
    expansion = QueryExpansion(8, "[MASK]", attend=False, fixed=False)
    sequences = complete(
        encode_expanded_in_slices(
            tokenizer,
            [words(2), words(6), words(7)],
            expansion,
            prompt=NO_PROMPT,
            truncation=Truncation(max_tokens=8),
        )
    )
    assert [one.is_truncated for one in sequences] == [False, False, True]


def two_texts(max_tokens: int, left: bool) -> PairTokenizer:
    description = describe(max_tokens, left=left)
    return PairTokenizer(Tokenizer.load(description), description)


def from_template(max_tokens: int, left: bool) -> PairTokenizer:
    # Three tokens of its own.
    template = PairTemplate(start="Judge ", body="{query} and {document}", end=" now", instruction="")
    description = dataclasses.replace(describe(max_tokens, left=left), pair_template=template)
    return PairTokenizer(Tokenizer.load(description), description)


@pytest.mark.usefixtures("read_as")
@pytest.mark.parametrize("make", [two_texts, from_template])
@pytest.mark.parametrize(("max_tokens", "left"), in_turns([13, 14], [False, True]))
def test_a_pair_is_cut_if_its_texts_together_are_too_long(
    make: Callable[[int, bool], PairTokenizer], left: bool, max_tokens: int
) -> None:
    room = max_tokens - 3
    tokenizer = make(max_tokens, left)
    for first in (0, 1, room // 2, room - 1, room, room + 1, 500):
        pairs = [(words(first), words(second)) for second in (0, 1, room - first, room - first + 1, 800)]
        expected = [first + len(second.split()) > room for _, second in pairs]
        assert [one.is_truncated for one in complete(tokenizer.encode_in_slices(pairs))] == expected, first


@pytest.mark.parametrize("end", EMPTY_ENDS, ids=len)
def test_the_end_of_a_pair_may_be_empty(end: str) -> None:
    tokenizer = two_texts(13, left=False)
    pairs = [(words(3), words(7, end)), (words(10, end), "")]
    found = complete(tokenizer.encode_in_slices(pairs))
    assert [one.is_truncated for one in found] == [False, False]
