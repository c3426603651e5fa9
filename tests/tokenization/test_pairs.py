"""Pairs become the tokens that the tokenizers library makes of them, cut as it cuts them."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import tokenizers

from support.texts import hard_texts, mixed_texts
from support.tiny_models import save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import InputTooLong, InvalidRequest, UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.models.heads import PairTemplate
from vecmill.requests import TextOrPair, Truncation
from vecmill.tokenization.pairs import PairTokenizer, encode_inputs, longest_first
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence

FRAME = [("[CLS]", 2), ("[SEP]", 3)]
BERT = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
ROBERTA = tokenizers.processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
WIDE = tokenizers.processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=FRAME
)
TYPED = tokenizers.processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=FRAME
)
BARE = tokenizers.processors.ByteLevel()


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("model"))))


def read(description: ModelDescription, processor: Any = TYPED, **changes: Any) -> tuple[Any, PairTokenizer]:
    """The library's tokenizer with `processor`, and how we read pairs with it."""
    changed = dataclasses.replace(description, **changes)
    tokenizer = Tokenizer.load(changed)
    tokenizer.library.post_processor = processor
    return tokenizer.library, PairTokenizer(tokenizer, changed)


def encode(pairs: PairTokenizer, batch: Sequence[tuple[str, str]], **options: Any) -> list[TokenSequence]:
    return complete(pairs.encode_in_slices(batch, **options))


def test_lengths_are_those_of_the_library() -> None:
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    for first, second, room in itertools.product(range(8), range(8), range(1, 12)):
        library.enable_truncation(room, strategy="longest_first")
        owners = library.encode("a " * first, "a " * second).sequence_ids
        assert longest_first(first, second, room) == (owners.count(0), owners.count(1))


@pytest.mark.parametrize(
    "processor", [BERT, ROBERTA, WIDE, TYPED, BARE], ids=lambda found: type(found).__name__
)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("longest", [2_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_pairs_are_put_together_and_cut_as_by_the_library(
    description: ModelDescription, processor: Any, left: bool, longest: int
) -> None:
    library, pairs = read(description, processor, truncate_left=left)
    texts = [text for text in (*hard_texts(), *mixed_texts(3, 20)) if len(text) <= longest]
    library.enable_truncation(
        description.max_tokens, strategy="longest_first", direction="left" if left else "right"
    )
    theirs = {pair: library.encode(*pair) for pair in zip(texts, [*texts[7:], *texts[:7]], strict=True)}
    expected = {pair: found for pair, found in theirs.items() if found.ids}  # others are refused
    library.no_truncation()
    for sequence, found in zip(encode(pairs, list(expected)), expected.values(), strict=True):
        assert sequence.token_ids.tolist() == found.ids
        assert sequence.token_type_ids.tolist() == found.type_ids
    assert any(found.overflowing for found in expected.values())


def test_token_types_are_left_out_where_the_tokenizer_gives_none(description: ModelDescription) -> None:
    _, pairs = read(description, tokenizer_config={"model_input_names": ["input_ids", "attention_mask"]})
    (sequence,) = encode(pairs, [("the", "the")])
    assert not sequence.token_type_ids.any()


def test_pairs_that_differ_in_any_way_have_keys_of_their_own(description: ModelDescription) -> None:
    _, pairs = read(description)
    batch = [("the of", "it"), ("the", "of it"), ("the of it", ""), ("", "the of it"), ("the", "it")]
    keys = {sequence.key for sequence in encode(pairs, batch)}
    assert len(keys) == len(batch)
    assert encode(pairs, batch)[0].key == encode(pairs, [batch[0]])[0].key
    # The same ids with other types, another prompt, or tokens that are not seen, are computed apart.
    variants = [
        TokenSequence.of([5, 6]),
        TokenSequence.of([5, 6], [0, 1]),
        TokenSequence.of([5, 6], prompt_length=1),
        TokenSequence.of([5, 6], unseen=1),
        TokenSequence.of([5, 6, 0, 1]),
    ]
    assert len({sequence.key for sequence in variants}) == len(variants)


def test_the_prompt_goes_before_the_first_text_alone(description: ModelDescription) -> None:
    _, pairs = read(description)
    prompted, plain = (
        encode(pairs, [("of it", "the")], prompt="the "),
        encode(pairs, [("the of it", "the")]),
    )
    assert prompted[0].key == plain[0].key


def test_a_long_pair_is_refused_where_it_may_not_be_cut(description: ModelDescription) -> None:
    _, pairs = read(description)
    with pytest.raises(InputTooLong, match="has 63 tokens; at most 48") as refusal:
        complete(
            pairs.encode_in_slices(
                [("the", "the"), ("the " * 30, "of " * 30)], truncation=Truncation(is_allowed=False)
            )
        )
    assert refusal.value.field == "input"
    with pytest.raises(InvalidRequest, match=r"input\[1\]` is not valid Unicode"):
        encode(pairs, [("a", "b"), ("a", "\ud83d")])


@pytest.mark.parametrize("limit", [4, 11, 47])
@pytest.mark.parametrize("keeps_end", [True, False])
def test_a_request_may_choose_the_end_and_the_length(
    description: ModelDescription, keeps_end: bool, limit: int
) -> None:
    library, pairs = read(description)
    texts = mixed_texts(4, 12)
    batch = [*itertools.pairwise(texts), ("the " * 60, "of it"), ("it", "a b c " * 30)]
    found = complete(
        pairs.encode_in_slices(batch, truncation=Truncation(keeps_end=keeps_end, max_tokens=limit))
    )
    library.enable_truncation(limit, strategy="longest_first", direction="left" if keeps_end else "right")
    for sequence, (first, second) in zip(found, batch, strict=True):
        assert sequence.token_ids.tolist() == library.encode(first, second).ids
    assert max(map(len, found)) == limit
    with pytest.raises(InputTooLong, match=f"at most {limit} are read"):
        encode(pairs, batch, truncation=Truncation(is_allowed=False, max_tokens=limit))


def test_prose_is_cut_to_what_a_request_asks_and_keeps_its_end(description: ModelDescription) -> None:
    template = PairTemplate("the ", "{instruction} of {query} is {document}", " end .", "one")
    library, pairs = read(description, pair_template=template)
    end = list(library.encode(" end .", add_special_tokens=False).ids)
    for limit in (len(end), 9, 20):
        (sequence,) = complete(
            pairs.encode_in_slices([("a", "it " * 100)], truncation=Truncation(max_tokens=limit))
        )
        assert len(sequence) == limit
        assert sequence.token_ids.tolist()[-len(end) :] == end


def test_an_order_of_its_own_is_refused(description: ModelDescription) -> None:
    backwards = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $B [SEP] $A [SEP]", special_tokens=FRAME
    )
    with pytest.raises(UnsupportedModel, match="not put together as one text after the other"):
        read(description, backwards)


def test_a_template_is_filled_in_one_pass_and_its_end_is_kept(description: ModelDescription) -> None:
    template = PairTemplate("the ", "{instruction} of {query} is {document}", " end .", "one")
    library, pairs = read(description, pair_template=template)

    def ids(text: str) -> list[int]:
        return list(library.encode(text, add_special_tokens=False).ids)

    plain, tricky, prompted = (
        *encode(pairs, [("a", "b"), ("{document}", "{query}")]),
        *encode(pairs, [("a", "b")], prompt="two"),
    )
    assert plain.token_ids.tolist() == ids("the one of a is b end .")
    assert tricky.token_ids.tolist() == ids("the one of {document} is {query} end .")
    assert prompted.token_ids.tolist() == ids("the two of a is b end .")
    (long,) = encode(pairs, [("a", "it " * 100)])
    assert len(long) == description.max_tokens
    assert long.token_ids.tolist()[-len(ids(" end .")) :] == ids(" end .")
    assert long.token_ids.tolist()[:5] == ids("the one of a is")


def test_a_long_query_is_counted_once_for_all_documents(description: ModelDescription) -> None:
    """An odd number of tokens fits, so the lengths of the query and the document decide which keeps more."""
    _, pairs = read(description)
    query = "the " * 20_000
    batch = [(query, "of " * (60 + number)) for number in range(20)]
    assert sum(pairs.encode_in_slices(batch)) < 3 * len(query)


def test_an_invalid_text_or_pair_is_named_by_its_place_in_the_request(description: ModelDescription) -> None:
    _, pairs = read(description)
    inputs: list[TextOrPair] = ["the", ("the", "of"), ("a", "\ud83d"), "\ud83d"]
    for count, place in ((4, 3), (3, 2)):
        with pytest.raises(InvalidRequest, match=rf"^`input\[{place}\]` is not valid Unicode"):
            complete(encode_inputs(pairs._tokenizer, pairs, inputs[:count]))
