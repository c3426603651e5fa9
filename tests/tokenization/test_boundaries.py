"""A boundary is one for any tokenizer that rules are known for, in whatever way its steps are combined."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from support.texts import mixed_texts, random_text
from vecmill.tokenization import boundaries
from vecmill.tokenization.boundaries import Boundaries

MARK = "\u2581"
REGULAR = sorted(boundaries._BYTE_LEVEL_WORDS)
NORMALIZERS: Sequence[Callable[[], Any]] = (
    normalizers.NFC,
    normalizers.NFD,
    normalizers.NFKC,
    normalizers.NFKD,
    normalizers.Nmt,
    normalizers.Lowercase,
    normalizers.Strip,
    normalizers.StripAccents,
    normalizers.BertNormalizer,
    lambda: normalizers.BertNormalizer(strip_accents=False, lowercase=False, handle_chinese_chars=False),
    lambda: normalizers.Strip(left=False, right=True),
    lambda: normalizers.Replace("``", '"'),
    lambda: normalizers.Replace(Regex(" {2,}"), MARK),
    *(
        lambda content=content: normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), content)
        for content in (" ", "")
    ),
    lambda: normalizers.Replace(" ", MARK),
    lambda: normalizers.Replace("the", "x y"),
    lambda: normalizers.Prepend(MARK),
)
PRE_TOKENIZERS: Sequence[Callable[[], Any]] = (
    pre_tokenizers.BertPreTokenizer,
    pre_tokenizers.Whitespace,
    pre_tokenizers.WhitespaceSplit,
    pre_tokenizers.Metaspace,
    lambda: pre_tokenizers.Metaspace(prepend_scheme="first"),
    lambda: pre_tokenizers.Metaspace(prepend_scheme="never"),
    lambda: pre_tokenizers.Metaspace(split=False),
    pre_tokenizers.ByteLevel,
    lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    lambda: pre_tokenizers.ByteLevel(use_regex=False),
    *(lambda pattern=pattern: pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in REGULAR),
    lambda: pre_tokenizers.Split(Regex(REGULAR[0]), "removed", invert=True),
    lambda: pre_tokenizers.Split(" ", "merged_with_previous"),
    pre_tokenizers.Digits,
    lambda: pre_tokenizers.Digits(individual_digits=True),
    *(
        lambda behaviour=behaviour: pre_tokenizers.Punctuation(behaviour)
        for behaviour in ("isolated", "contiguous", "removed", "merged_with_next", "merged_with_previous")
    ),
)
MODELS: Sequence[tuple[Callable[[], Any], Callable[..., Any]]] = (
    (lambda: models.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer),
    (lambda: models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer),
    (models.Unigram, lambda **settings: trainers.UnigramTrainer(unk_token="<unk>", **settings)),
)
ADDED = (
    "<mask>",
    "the",
    "model.",
    "x",
    ")",
    "the model",
    " reads",
    "  ",
    "\n",
    "\n\n",
    " ",
    "漢",
    "漢字",
    "42",
)


def make_random(draw: random.Random) -> Any:
    """A tokenizer with random steps, of which rules are known for some, and random added tokens."""
    make_model, make_trainer = draw.choice(MODELS)
    library = Tokenizer(make_model())
    stages = [draw.choice(NORMALIZERS)() for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    splits = [draw.choice(PRE_TOKENIZERS)() for _ in range(draw.choice([0, 1, 1, 2, 2, 3]))]
    library.normalizer = normalizers.Sequence(stages) if stages else None
    library.pre_tokenizer = pre_tokenizers.Sequence(splits) if splits else None
    words = [text[:300] for text in mixed_texts(1, 20)]
    library.train_from_iterator(
        words, make_trainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    )
    added = draw.sample(ADDED, draw.choice([0, 1, 2, 3]))
    # The library panics where a token takes whitespace that is a token too.
    strips = () if any(map(str.isspace, added)) else ("lstrip", "rstrip")
    flags = (*strips, "single_word", "normalized")
    for content in added:
        library.add_tokens([AddedToken(content, **{flag: draw.random() < 0.2 for flag in flags})])
    return library


def find_fault(library: Any, text: str, found: Boundaries) -> int | None:
    """The first boundary of a text at which the tokens of its parts are not those of the whole."""

    def encode(part: str) -> list[int]:
        ids: list[int] = library.encode(part, add_special_tokens=False).ids
        return ids

    whole, place = encode(text), 0
    while (place := found.first(text, place, len(text)) or 0) > 0:
        skipped = len(encode(text[place - 1 : place]))
        if encode(text[:place]) + encode(text[place - 1 :])[skipped:] != whole:
            return place
    return None


@pytest.mark.parametrize("tokenizers", [12, pytest.param(100, marks=pytest.mark.full)])
def test_boundaries_hold_for_any_combination_of_steps_with_rules(tokenizers: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    checked = 0
    while checked < tokenizers:
        library = make_random(draw)
        found = Boundaries.of(library)
        if found is None:
            continue
        checked += 1
        for text in ("foo the x bar", "model. reads x", *(random_text(draw, 30) for _ in range(12))):
            place = find_fault(library, text, found)
            assert place is None, (text, place, library.to_str()[:3_000])


def words_of(steps: Sequence[Any], *, normalizer: Any = None, added: Sequence[Any] = ()) -> Any:
    """A tokenizer with these pre-tokenizers, which knows the words "o", "bar" and their parts."""
    pieces = ("<unk>", "o", " ", MARK, "\u0120", "bar", f"{MARK}bar", "\u0120bar", "b", "a", "r", "f")
    vocabulary = [(piece, -float(len(pieces) - rank)) for rank, piece in enumerate(pieces)]
    joined = [(piece, 0.0) for piece in (f"o{MARK}", "o\u0120", "\u0120\u0120")]
    library = Tokenizer(models.Unigram([*vocabulary, *joined], 0, False))
    library.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    library.normalizer = normalizer
    library.add_tokens(list(added))
    return library


SPLIT = pre_tokenizers.Split(Regex(REGULAR[0]), "isolated")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.parametrize("later", [pre_tokenizers.Metaspace(prepend_scheme="never"), SPLIT])
def test_a_step_that_finds_no_spaces_any_more_splits_nothing(later: Any) -> None:
    library = words_of([BYTES, later])
    assert find_fault(library, "foo bar", Boundaries.of(words_of([SPLIT]))) == 3  # type: ignore[arg-type]
    assert Boundaries.of(library) is None


@pytest.mark.parametrize(
    "steps", [[pre_tokenizers.Metaspace(prepend_scheme="first")], [SPLIT, BYTES]], ids=["metaspace", "bytes"]
)
def test_spaces_that_are_stripped_after_an_added_token_leave_no_boundary(steps: Sequence[Any]) -> None:
    library = words_of(steps, normalizer=normalizers.Strip(), added=[AddedToken("foo", normalized=False)])
    assert find_fault(library, "foo bar", Boundaries.of(words_of(steps))) == 3  # type: ignore[arg-type]
    assert Boundaries.of(library) is None


def test_spaces_around_ideographs_leave_no_boundary_unless_words_lose_their_spaces() -> None:
    by_words, by_bytes = [pre_tokenizers.WhitespaceSplit()], [SPLIT, BYTES]
    text, normalizer = "foo 漢 漢", normalizers.BertNormalizer()
    for steps in (by_words, by_bytes):
        library = words_of(steps, normalizer=normalizer)
        fault = find_fault(library, text, Boundaries.of(words_of(steps)))  # type: ignore[arg-type]
        assert (Boundaries.of(library) is None) is (fault is not None) is (steps is by_bytes)


@pytest.mark.parametrize("text", ["foo、bar", "foo\nbar"])
def test_a_space_that_is_put_after_an_added_token_leaves_boundaries_at_spaces_alone(text: str) -> None:
    steps, added = [pre_tokenizers.ByteLevel(add_prefix_space=True)], [AddedToken("foo", normalized=False)]
    library, plain = words_of(steps, added=added), words_of(steps)
    assert find_fault(library, text, Boundaries.of(plain)) == 3  # type: ignore[arg-type]
    found = Boundaries.of(library)
    assert found is not None
    assert (found.first(text, 0, 7), found.first("foo bar", 0, 7)) == (None, 3)
