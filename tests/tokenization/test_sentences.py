"""Chunks end at sentences where they can: in any script, in time that grows with the text alone."""

import random
import time
from itertools import pairwise

import numpy as np
import pytest

from vecmill.tokenization.sentences import cut_at_sentences, find_sentence_ends
from vecmill.tokenization.whole_texts import count_parts


def sentences(text: str) -> list[str]:
    """The sentences of a text whose tokens are its characters."""
    places = find_sentence_ends(text, np.arange(len(text) + 1))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize(
    "text",
    [
        "One.| Two!| Three?| Four",
        'She said "No."| Then she left.',
        "What?!| Really...| Yes.",
        "It costs 3.50 euros.| That is e.g. cheap, i.e. not dear.| Good.",
        "J. R. R. Tolkien wrote it.| In English.",
        "猫は寝る。|犬は吠える！|「本当？」|はい。",
        "वह आया।| वह गया॥| ठीक",
        "هل جاء؟| نعم.",
        "A heading\n\n|A paragraph without a stop\n \n|Another",
        "no end at all",
        "...",
        "",
    ],
)
def test_sentences_end_where_a_reader_sees_it(text: str) -> None:
    # A token that begins right behind the marks is the first of the next sentence, spaces included.
    expected = text.split("|")
    found = sentences(text.replace("|", ""))
    assert [each.strip() for each in found] == [each.strip() for each in expected]
    assert "".join(found) == "".join(expected)


def test_a_break_inside_a_token_is_none() -> None:
    assert find_sentence_ends("It. B", np.array([0, 2, 3, 5])) == [2]
    assert find_sentence_ends("It. B", np.array([0, 5])) == []


@pytest.mark.parametrize(
    "text", ["." * 400_000, " " * 400_000, "\n " * 200_000, '."' * 200_000, "。" * 400_000]
)
def test_the_time_grows_with_the_text_alone(text: str) -> None:
    began = time.process_time()
    find_sentence_ends(text, np.arange(len(text) + 1))
    assert time.process_time() - began < 5


def test_parts_are_whole_sentences_that_fit() -> None:
    assert cut_at_sentences(20, 10, 0, [4, 8, 15]) == [(0, 8), (8, 15), (15, 20)]
    assert cut_at_sentences(20, 10, 4, [4, 8, 15]) == [(0, 8), (4, 14), (10, 20)]
    assert cut_at_sentences(20, 10, 0, []) == [(0, 10), (10, 20)]
    assert cut_at_sentences(10, 10, 0, [5]) == [(0, 10)]
    assert cut_at_sentences(0, 10, 0, []) == [(0, 0)]


def test_any_parts_cover_the_text_within_the_size_and_the_number() -> None:
    draw = random.Random(5)
    for _ in range(3_000):
        tokens, size = draw.randrange(200), draw.randrange(1, 40)
        overlap = draw.randrange(size)
        ends = sorted(draw.sample(range(1, max(2, tokens)), k=min(draw.randrange(20), max(1, tokens - 1))))
        parts = cut_at_sentences(tokens, size, overlap, ends)
        assert parts[0][0] == 0
        assert parts[-1][1] == tokens
        assert all(end - start <= size for start, end in parts)
        for (start, end), (after, _) in pairwise(parts):
            assert start < after <= end
            assert end - after <= overlap
            is_whole = end in ends or end == start + size
            assert is_whole
            fitting = [each for each in ends if start + overlap < each <= start + size]
            assert not fitting or end == fitting[-1]
        assert len(parts) <= 2 * count_parts(tokens, size, overlap) + 1
