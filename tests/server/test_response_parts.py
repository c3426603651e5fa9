"""The parts of a text that its tokens stand for make the text again; places count bytes where they are to."""

from collections.abc import Callable

import numpy as np
import pytest
import tokenizers

from support.described_models import describe_tasks
from vecmill.models import Task
from vecmill.results import ClassifyResult, Timings, Tokens
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.split_texts import split_in_slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill_server.dialects.response_parts import text_pieces, utf8_places, write_labels

TEXTS = (
    "hello world",
    "  Ein  längerer\tSatz,\n日本語 and 🙂 ①½ CAPITALS  ",
    "İstanbul ﬁne e\u0301 \u200b",
    "🙂" * 3,
    "",
    "   ",
    "[SEP] inside",
)


def of_words(text: str, special: bool) -> Tokens:
    tokenizer = Tokenizer.load(describe_tasks()[Task.EMBED])
    (tokens,) = complete(split_in_slices(tokenizer, [text], special=special))
    return tokens


def of_bytes(text: str, special: bool) -> Tokens:
    """Of a tokenizer whose tokens are single bytes: a character may have several."""
    letters = {letter: index for index, letter in enumerate(tokenizers.pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    found = tokenizer.encode(text, add_special_tokens=special)
    offsets = np.array(found.offsets, np.int64).reshape(-1, 2)
    return Tokens.of(found.ids, found.tokens, found.special_tokens_mask, offsets)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("read", [of_words, of_bytes])
@pytest.mark.parametrize("text", TEXTS)
def test_the_parts_joined_are_the_text(text: str, read: Callable[[str, bool], Tokens], special: bool) -> None:
    tokens = read(text, special)
    pieces = text_pieces(tokens, text)
    assert len(pieces) == len(tokens)
    has_tokens = any(not token.is_special for token in tokens)
    assert "".join(pieces) == (text if has_tokens else "")


def test_a_character_of_several_tokens_is_in_the_first() -> None:
    assert list(text_pieces(of_bytes("a日", False), "a日")) == ["a", "日", "", ""]


def test_places_count_bytes() -> None:
    text = "wörld 日本🙂"
    found = utf8_places(text, np.arange(len(text) + 1))
    assert found.tolist() == [len(text[:end].encode()) for end in range(len(text) + 1)]
    plain = np.arange(3)
    assert utf8_places("ab", plain) is plain


def test_labels_come_by_their_scores_and_equal_ones_as_the_dialect_has_them() -> None:
    scores = np.array([[0.1, 0.4, 0.4, 0.1], [0.2, 0.2, 0.2, 0.4]], np.float32)
    result = ClassifyResult(("a", "b", "c", "d"), scores, 0, Timings(0, 0, 0, 0))

    def order(*, last_first: bool) -> list[str]:
        written = write_labels(result, last_first=last_first)
        return ["".join(entry["label"] for entry in labels) for labels in written]

    assert (order(last_first=False), order(last_first=True)) == (["bcad", "dabc"], ["cbda", "dcba"])
    assert ["".join(label for label, _ in result.ranked(index)) for index in range(2)] == ["bcad", "dabc"]
