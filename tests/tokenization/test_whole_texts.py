"""A text that is cut by its tokens keeps all of them, and each part knows its place in the text."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from support.texts import hard_texts, mixed_texts, random_text
from support.tokenizers_of_kind import save_tokenizer
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidRequest, RequestTooLarge
from vecmill.models import locate_model
from vecmill.tokenization.pieces import LONGEST_PIECE, complete
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.tokenization.whole_texts import WholeText, count_parts, cut_tokens, read_in_slices

KINDS = ("embedded", "byte_level", "byte_fallback", "unigram", "word_piece")
NO_LIMIT = 10**9
# Each is a character of several code points or bytes, or a sign that joins with the one before it.
SIGNS = "👩\u200d💻 🇩🇪 e\u0301 क्\u200dष 한국어 𠀀 日本語の文章 ไทย \u0301x שלום 😀😀😀"


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    plain = dataclasses.replace(describe_model(locate_model()), max_tokens=NO_LIMIT)
    if request.param == "embedded":
        return Tokenizer.load(plain)
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder, request.param, mixed_texts(1, 100), longest=100)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    return Tokenizer.load(
        dataclasses.replace(plain, tokenizer_file=folder / "tokenizer.json", tokenizer_config=settings)
    )


def read(tokenizer: Tokenizer, *texts: str, prompt: str = "", most_tokens: int = NO_LIMIT) -> list[WholeText]:
    return complete(read_in_slices(tokenizer, texts, prompt=prompt, most_tokens=most_tokens))


def random_texts(draw: random.Random) -> list[str]:
    return [
        SIGNS,
        "",
        " ",
        *draw.sample(hard_texts(), 8),
        *(random_text(draw, size) for size in (0, 1, 5, 20, 60)),
    ]


@pytest.mark.promise("exact-chunks")
def test_parts_are_the_text_and_its_tokens_whatever_the_sizes(tokenizer: Tokenizer) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    long = " ".join(mixed_texts(draw.randrange(1000), 60))[: 2 * LONGEST_PIECE + 100]
    for prompt in ("", "query: ", random_text(draw, 6)):
        texts = random_texts(draw) if prompt else [*random_texts(draw), long]
        usual = tokenizer.encode(texts, prompt=prompt)
        for text, whole, plain in zip(texts, read(tokenizer, *texts, prompt=prompt), usual, strict=True):
            alike = whole.sequence((0, len(whole)))
            assert alike.key == plain.key, (prompt, text)
            size = draw.randint(1, 12)
            parts = cut_tokens(len(whole), size, overlap := draw.randrange(size))
            assert len(parts) == count_parts(len(whole), size, overlap)
            frame = whole.frame
            ids: list[int] = []
            covered = 0
            for number, part in enumerate(parts):
                own = whole.sequence(part).token_ids.tolist()
                assert own[: len(frame.before)] == frame.before.tolist()
                own = own[len(frame.before) : len(own) - len(frame.after)]
                shared = overlap if number else 0
                assert ids[len(ids) - shared :] == own[:shared]
                ids += own[shared:]
                assert len(own) == size or (part == parts[-1] and len(own) <= size)
                start, end = whole.place(part)
                assert 0 <= start <= end <= len(text)
                assert start <= covered, (prompt, text, part)  # no gap
                covered = end
            assert ids == whole.ids.tolist()
            assert whole.place((0, len(whole))) == (0, len(text))
            assert covered == len(text)
            ends = [
                whole.place((start, min(start + size, len(whole))))
                for start in range(0, max(1, len(whole)), size)
            ]
            assert "".join(text[start:end] for start, end in ends) == text


def test_places_count_characters_and_not_bytes(tokenizer: Tokenizer) -> None:
    for text in ("日本 東京", "a😀b", "e\u0301a"):
        (whole,) = read(tokenizer, text)
        places = [whole.place((index, index + 1)) for index in range(len(whole))]
        assert "".join(text[start:end] for start, end in places) == text


def test_what_stands_for_a_word_is_at_the_word(tokenizer: Tokenizer) -> None:
    text = "😀 日本 the"
    (whole,) = read(tokenizer, text)
    last = [index for index in range(len(whole)) if whole.lasts[index] >= text.index("the")]
    start, end = whole.place((last[0], len(whole)))
    assert text[start:end].strip() == "the"


def test_a_text_with_too_many_tokens_is_read_no_further(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestTooLarge, match="more than 10 tokens in all") as refusal:
        read(tokenizer, "a b c", "word " * 100_000, most_tokens=10)
    assert refusal.value.field == "input"


def test_half_of_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match=r"`input\[1\]` is not valid Unicode"):
        read(tokenizer, "fine", "\ud800")


def test_no_part_is_inside_another() -> None:
    draw = random.Random(5)
    for _ in range(1_000):
        tokens, size = draw.randrange(200), draw.randint(1, 30)
        parts = cut_tokens(tokens, size, draw.randrange(size))
        assert parts[0][0] == 0
        assert parts[-1][1] == tokens
        assert bool((np.diff([end for _, end in parts]) > 0).all())


def test_a_model_without_special_tokens_reads_a_token_for_an_empty_text(tmp_path: Path) -> None:
    plain = dataclasses.replace(describe_model(locate_model()), special_tokens=False)
    tokenizer = Tokenizer.load(plain)
    (whole,) = read(tokenizer, "")
    assert whole.sequence((0, len(whole))).key == tokenizer.encode([""])[0].key
    assert whole.place((0, len(whole))) == (0, 0)
