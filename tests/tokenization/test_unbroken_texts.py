"""Long texts without a place to divide them: what one call reads of them is bounded before it is made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidRequest, RequestTooLarge
from vecmill.models import locate_model
from vecmill.requests import Truncation
from vecmill.tokenization import pieces
from vecmill.tokenization.pieces import Slices, complete, read_places
from vecmill.tokenization.split_texts import split_in_slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.tokenization.whole_texts import read_in_slices

MOST = 100

Read = Callable[[Tokenizer, str], Slices[Any]]
READINGS: dict[str, Read] = {
    "split": lambda tokenizer, text: split_in_slices(tokenizer, [text], special=True),
    "whole": lambda tokenizer, text: read_in_slices(tokenizer, [text], prompt="", most_tokens=10_000),
    "beginning": lambda tokenizer, text: tokenizer.encode_in_slices([text]),
    "end": lambda tokenizer, text: tokenizer.encode_in_slices([text], truncation=Truncation(keeps_end=True)),
    "prompt": lambda tokenizer, text: tokenizer.encode_in_slices(["a", "b"], prompt=text),
}


@pytest.fixture(scope="module", params=["known", "unknown"])
def tokenizer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer whose boundaries are known, and one that has none."""
    directory = save_tiny_bert(tmp_path_factory.mktemp("model"), TinyBert())
    if request.param == "unknown":
        set_words(directory, r"\w+|.")
    return Tokenizer.load(describe_model(locate_model(str(directory))))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if few characters were many."""
    monkeypatch.setattr(pieces, "MOST_UNBROKEN", MOST)
    monkeypatch.setattr(pieces, "LONGEST_UNCOUNTED", 40)
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 20)
    monkeypatch.setattr(pieces, "SHORTEST_PIECE", 8)


def set_words(directory: Path, pattern: str) -> None:
    """Let the tokenizer of a model split texts by a regular expression."""
    path = directory / "tokenizer.json"
    document = json.loads(path.read_text())
    document["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(document))
    edit_config(directory, tokenizer_class="PreTrainedTokenizerFast")


def edit_config(directory: Path, **values: Any) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.promise("loop-responsive", "bounded-input")
@pytest.mark.parametrize("reading", READINGS)
def test_a_text_of_too_many_tokens_without_a_boundary_is_refused_before_it_is_read(
    tokenizer: Tokenizer, small_limits: None, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    read: list[int] = []

    def encode(text: str, *_: Any, **__: Any) -> Any:
        read.append(len(text))
        return tokenizer.library.encode_batch([text])[0]

    monkeypatch.setattr(tokenizer, "encode_one", encode)
    with pytest.raises(RequestTooLarge, match=f"a text with more than {MOST} tokens and no place"):
        complete(READINGS[reading](tokenizer, "." * (MOST + 50)))
    assert not read


@pytest.mark.parametrize("reading", READINGS)
def test_a_text_of_fewer_tokens_is_read(tokenizer: Tokenizer, small_limits: None, reading: str) -> None:
    complete(READINGS[reading](tokenizer, "." * (MOST - 10)))


def test_half_a_surrogate_pair_is_named_by_the_count_too(tokenizer: Tokenizer, small_limits: None) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        complete(split_in_slices(tokenizer, ["." * 60 + "\ud800"], special=True))


def test_places_of_many_tokens_are_those_of_few(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*hard_texts(), *mixed_texts(3, 10), "[SEP] a [CLS]"]
    encodings = [tokenizer.encode_one(text, "the text", fast=False) for text in texts]
    few = [read_places(encoding).tolist() for encoding in encodings]
    assert few == [[list(place) for place in encoding.offsets] for encoding in encodings]
    monkeypatch.setattr(pieces, "PLACES_AT_ONCE", 0)
    assert [read_places(encoding).tolist() for encoding in encodings] == few


@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize("stage", ["words", "characters"])
def test_a_pattern_that_may_try_for_long_never_keeps_the_interpreter_lock(tmp_path: Path, stage: str) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    if stage == "words":
        set_words(directory, "(a+)+$")
    else:
        path = directory / "tokenizer.json"
        document = json.loads(path.read_text())
        replace = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
        document["normalizer"] = {"type": "Sequence", "normalizers": [document["normalizer"], replace]}
        path.write_text(json.dumps(document))
        edit_config(directory, tokenizer_class="PreTrainedTokenizerFast")
    tokenizer = Tokenizer.load(describe_model(locate_model(str(directory))))
    kept: list[bool] = []

    def encode_one(*args: Any, keeps_lock: bool, **options: Any) -> Any:
        kept.append(keeps_lock)
        return Tokenizer.encode_one(tokenizer, *args, keeps_lock=keeps_lock, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "encode_one", encode_one)
        tokenizer.encode(["b"])
    assert kept == [False]
