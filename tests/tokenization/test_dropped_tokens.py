"""The number of tokens that truncation drops is the tokenizer's, and is counted without a second reading."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest

from support.scales import in_turns
from support.texts import long_texts, mixed_texts, random_text
from tokenization.test_pieces import KINDS, UNSPLIT, make_library
from vecmill.directory_layouts import describe_model
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.dropped_tokens import DroppedTokens
from vecmill.requests import Truncation
from vecmill.results import Truncated
from vecmill.tokenization import pieces
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.shared import LoadedTokenizer
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut

pytestmark = pytest.mark.promise("truncation-told")

LIBRARIES = (
    "embedded",
    *(f"kind {kind}" for kind in KINDS),
    "class GPT2Tokenizer",
    "class XLMRobertaTokenizer",
)


def describe(library: Any, max_tokens: int) -> ModelDescription:
    plain = describe_model(locate_model())
    return dataclasses.replace(plain, max_tokens=max_tokens, vocab_size=library.get_vocab_size())


def load(name: str, max_tokens: int, most_counted: int = pieces.MOST_COUNTED) -> Tokenizer:
    library = make_library(name)
    library.no_truncation()
    library.no_padding()
    return Tokenizer(
        LoadedTokenizer(library, truncates_left=False, highest_id=0),
        describe(library, max_tokens),
        most_counted,
    )


def count(sequences: Sequence[TokenSequence]) -> tuple[Truncated, ...]:
    dropped = DroppedTokens(sequences)
    complete(dropped.count_in_slices())
    return dropped.found()


def truth(library: Any, inputs: Sequence[Any], kept: Sequence[TokenSequence]) -> tuple[Truncated, ...]:
    counts = [
        len(library.encode(*each)) if isinstance(each, tuple) else len(library.encode(each))
        for each in inputs
    ]
    return tuple(
        Truncated(index, whole - len(sequence))
        for index, (whole, sequence) in enumerate(zip(counts, kept, strict=True))
        if whole > len(sequence)
    )


def mixed(seed: int, texts: int) -> list[str]:
    """Texts of prose, of all lengths up to several pieces, and texts of any characters."""
    draw = random.Random(seed)
    prose = [*mixed_texts(seed, texts // 2), *long_texts(seed, texts // 4)]
    found = [
        " ".join(draw.choices(prose, k=draw.choice((1, 1, 1, 5, 12)))) for _ in range(texts - texts // 5)
    ]
    # A text without any token is refused where the model adds none of its own.
    return [*found, *(f"a {random_text(draw, draw.randint(0, 2_000))}" for _ in range(texts // 5))]


@pytest.mark.parametrize("texts", [16, pytest.param(500, marks=pytest.mark.full)])
@pytest.mark.parametrize(("name", "keeps_end"), in_turns(LIBRARIES, [False, True]))
def test_the_count_is_the_tokenizers(name: str, keeps_end: bool, texts: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    inputs, tokenizer = ["a", *mixed(seed, texts)], load(name, 64, 10**9)
    sequences = tokenizer.encode(inputs, truncation=Truncation(keeps_end=keeps_end))
    found = count(sequences)
    assert found == truth(make_library(name), inputs, sequences)
    assert texts // 4 < len(found) < len(inputs)
    prompted = tokenizer.encode(inputs, prompt="a prompt: ", truncation=Truncation(keeps_end=keeps_end))
    assert count(prompted) == truth(make_library(name), [f"a prompt: {text}" for text in inputs], prompted)


@pytest.mark.parametrize("texts", [10, pytest.param(500, marks=pytest.mark.full)])
@pytest.mark.parametrize("max_tokens", [63, 64])
@pytest.mark.parametrize("name", ["embedded", "kind byte_level", "kind unigram"])
def test_the_count_of_a_pair_is_the_tokenizers(name: str, max_tokens: int, texts: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    tokenizer = load(name, max_tokens, 10**9)
    reader = PairTokenizer(tokenizer, describe(make_library(name), max_tokens))
    documents = mixed(seed, texts)
    for query in ("a query", " ".join(long_texts(seed, 2))):
        pairs = [(query, document) for document in documents]
        sequences = complete(reader.encode_in_slices(pairs))
        assert count(sequences) == truth(make_library(name), pairs, sequences)


def test_nothing_is_read_twice_for_the_count() -> None:
    read: list[int] = []

    class Counted(Tokenizer):
        def _encode_part(self, text: str, places: bool) -> Any:
            read.append(len(text))
            return super()._encode_part(text, places)

    tokenizer, text = Counted.load(describe_model(locate_model())), "a long text " * 50_000
    sequences = tokenizer.encode([text])
    assert sum(read) < 5_000
    assert count(sequences) == (Truncated(0, 150_002 - 256),)
    # Each piece is read with the character before it, and that character alone.
    assert sum(read) < len(text) + 2 * len(read)


def test_what_is_beyond_the_budget_has_a_lower_bound() -> None:
    tokenizer = load("embedded", 16, most_counted=20_000)
    sequences = tokenizer.encode(["a cat " * 3_000, "a cat " * 10_000, "a dog " * 10_000, "a dog"])
    first, second, third = count(sequences)
    assert first == Truncated(0, 6_002 - 16)
    for bound in (second, third):
        assert not bound.is_exact
        assert 0 < bound.token_count < 20_002 - 16


def test_the_budget_bounds_what_is_kept() -> None:
    sequences = load("embedded", 16, most_counted=20_000).encode(["a cat " * 10_000] * 50)
    assert DroppedTokens(sequences).characters <= 20_000


def test_a_piece_without_a_boundary_is_not_read_for_the_count() -> None:
    sequences = load("embedded", 16).encode(["a cat " * 2_000 + "x" * 100_000 + " a cat" * 1_000])
    (found,) = count(sequences)
    assert not found.is_exact
    assert 3_000 < found.token_count < 4_000


@pytest.mark.parametrize("name", UNSPLIT[2:3])
def test_a_tokenizer_without_boundaries_has_read_all_of_a_text(name: str) -> None:
    sequences = load(name, 16).encode(["a cat " * 5_000])
    assert not DroppedTokens(sequences).texts
    assert count(sequences)[0].is_exact


def test_a_cut_whose_tokens_nobody_can_count_has_a_lower_bound() -> None:
    cuts = (TextCut(5), TextCut(0, is_exact=False))
    assert count([TokenSequence.of([1]), TokenSequence.of([1], cuts=cuts)]) == (Truncated(1, 5, False),)
