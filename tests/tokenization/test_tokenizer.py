"""Texts become the model's tokens; limits and bad texts are told apart and named."""

import dataclasses
import json
import string
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.published import edit_json
from support.texts import hard_texts, long_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, InputTooLong, InvalidRequest
from vecmill.models import ModelDescription, locate_model
from vecmill.requests import Truncation
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.split_texts import cut_texts_in_slices, split_in_slices
from vecmill.tokenization.tokenizer import Tokenizer

MAX_TOKENS = 48


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    directory = save_tiny_bert(tmp_path_factory.mktemp("model"), TinyBert(max_seq_length=MAX_TOKENS))
    return describe_model(locate_model(directory))


@pytest.fixture(scope="module")
def tokenizer(description: ModelDescription) -> Tokenizer:
    return Tokenizer.load(description)


def test_stored_truncation_and_padding_are_not_heeded(tokenizer: Tokenizer) -> None:
    short, long = tokenizer.encode(["the", "the " * 30])
    assert len(short) == 3
    assert len(long) == 32


def test_special_tokens_enclose_the_text(tokenizer: Tokenizer) -> None:
    start, end = 2, 3  # [CLS] and [SEP] in the tiny vocabulary
    for sequence in tokenizer.encode([*hard_texts(), *mixed_texts(1, 20)]):
        assert (sequence.token_ids[0], sequence.token_ids[-1]) == (start, end)
        assert 2 <= len(sequence) <= MAX_TOKENS
        assert sequence.token_ids.dtype == sequence.token_type_ids.dtype == np.int64


def test_a_text_has_the_same_tokens_whether_or_not_other_threads_may_run(tokenizer: Tokenizer) -> None:
    texts = [*hard_texts(), *mixed_texts(2, 20), *long_texts(2, 3)]
    found: list[bytes] = []

    def read_patiently() -> Generator[int, None, None]:
        found.extend(sequence.key for sequence in (yield from tokenizer.encode_in_slices(texts)))

    for _ in read_patiently():
        pass
    assert found == [sequence.key for sequence in complete(tokenizer.encode_in_slices(texts))]
    with pytest.raises(InvalidRequest, match=r"input\[1\]"):
        complete(tokenizer.encode_in_slices(["fine", "\ud800"]))


@pytest.mark.parametrize(
    ("text", "keeps_lock"), [("a" * 256, True), ("a" * 257, False), ("東" * 85, True), ("東" * 86, False)]
)
def test_only_a_short_text_is_read_with_the_interpreter_lock(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, text: str, keeps_lock: bool
) -> None:
    kept: list[bool] = []

    def encode_one(*args: Any, keeps_lock: bool, **options: Any) -> Any:
        kept.append(keeps_lock)
        return Tokenizer.encode_one(tokenizer, *args, keeps_lock=keeps_lock, **options)

    monkeypatch.setattr(tokenizer, "encode_one", encode_one)
    tokenizer.encode([text])
    assert kept == [keeps_lock]


@pytest.mark.parametrize(("words", "kept"), [(46, 48), (47, 48), (10_000, 48), (45, 47)])
def test_long_texts_are_cut_and_counted(tokenizer: Tokenizer, words: int, kept: int) -> None:
    (sequence,) = tokenizer.encode(["the " * words])
    assert len(sequence) == kept
    assert len(complete(split_in_slices(tokenizer, ["the " * words], special=True))[0]) == words + 2
    if words + 2 > kept:
        with pytest.raises(InputTooLong) as refusal:
            tokenizer.encode(["the " * words], truncation=Truncation(is_allowed=False))
        assert refusal.value.token_count == words + 2


def test_the_end_is_kept_where_the_model_says_so(description: ModelDescription) -> None:
    text = "a b c " * 20 + "the"
    right, left = (
        Tokenizer.load(dataclasses.replace(description, truncate_left=side)).encode([text])[0].token_ids
        for side in (False, True)
    )
    whole = Tokenizer.load(dataclasses.replace(description, max_tokens=1_000)).encode([text])[0].token_ids
    assert right.tolist() == [*whole[:47], whole[-1]]
    assert left.tolist() == [whole[0], *whole[-47:]]


@pytest.mark.parametrize("limit", [2, 3, 10, 47, 48])
@pytest.mark.parametrize("keeps_end", [True, False, None])
@pytest.mark.parametrize("truncate_left", [True, False])
def test_a_request_may_choose_the_end_and_the_length(
    description: ModelDescription, truncate_left: bool, keeps_end: bool | None, limit: int
) -> None:
    text = " ".join(string.ascii_lowercase * 3)
    whole = Tokenizer.load(dataclasses.replace(description, max_tokens=1_000)).encode([text])[0].token_ids
    model = Tokenizer.load(dataclasses.replace(description, truncate_left=truncate_left))
    truncation = Truncation(keeps_end=keeps_end, max_tokens=limit)
    keeps_end = truncate_left if keeps_end is None else keeps_end
    body, room = whole[1:-1].tolist(), limit - 2
    kept = body[len(body) - room :] if keeps_end else body[:room]
    (sequence,) = model.encode([text], truncation=truncation)
    assert sequence.token_ids.tolist() == [whole[0], *kept, whole[-1]]
    assert [
        token.token_id for token in complete(split_in_slices(model, [text], special=True))[0]
    ] == whole.tolist()
    ((placed, spans),) = complete(model.encode_with_spans_in_slices([text], truncation=truncation))
    assert placed.token_ids.tolist() == sequence.token_ids.tolist()
    letters = [text[start:end] for start, end in zip(spans.starts[1:-1], spans.ends[1:-1], strict=True)]
    assert letters == (text.split()[len(body) - room :] if keeps_end else text.split()[:room])
    ids = model.from_ids(whole.tolist(), truncation=truncation).token_ids
    assert ids.tolist() == (whole[-limit:] if keeps_end else whole[:limit]).tolist()


def test_a_longer_limit_than_the_model_s_is_the_model_s(tokenizer: Tokenizer) -> None:
    (sequence,) = tokenizer.encode(["the " * 100], truncation=Truncation(max_tokens=1_000))
    assert len(sequence) == MAX_TOKENS


def test_the_limit_of_a_request_is_the_one_that_its_refusal_names(tokenizer: Tokenizer) -> None:
    strict = Truncation(is_allowed=False, max_tokens=10)
    assert len(tokenizer.encode(["the " * 8], truncation=strict)[0]) == 10
    with pytest.raises(InputTooLong, match="has 11 tokens; at most 10"):
        tokenizer.encode(["the " * 9], truncation=strict)


@pytest.mark.parametrize("count", [1, 5, 1_000])
def test_texts_are_cut_after_a_token(tokenizer: Tokenizer, count: int) -> None:
    texts = [*hard_texts(), *mixed_texts(3, 20)]
    found = complete(cut_texts_in_slices(tokenizer, texts, count))
    for text, (cut, cuts) in zip(texts, found, strict=True):
        assert text.startswith(cut)
        (whole, kept) = complete(split_in_slices(tokenizer, [text, cut], special=False))
        for part in [part for each in cuts for part in each.unread]:
            complete(part.count_in_slices())
        dropped = [each.tokens + sum(part.counted for part in each.unread) for each in cuts]
        assert dropped == [len(whole) - count] * (len(whole) > count)
        assert [token.token_id for token in kept] == [token.token_id for token in whole[:count]]


def test_tokens_know_where_they_stand(tokenizer: Tokenizer) -> None:
    text = "the  end of it"
    (tokens,) = complete(split_in_slices(tokenizer, [text], special=True))
    assert [token.is_special for token in (tokens[0], tokens[-1])] == [True, True]
    assert (tokens[0].start, tokens[0].end) == (None, None)
    assert not any(token.is_special for token in tokens[1:-1])
    assert "".join(text[token.start : token.end] for token in tokens[1:-1]) == text.replace(" ", "")
    (plain,) = complete(split_in_slices(tokenizer, [text], special=False))
    assert plain == tokens[1:-1]


def test_tokens_spell_their_text(tokenizer: Tokenizer, description: ModelDescription) -> None:
    ids = tokenizer.encode(["the end"])[0].token_ids.tolist()
    assert tokenizer.join(ids, skip_special=True) == "the end"
    assert tokenizer.join(ids, skip_special=False) == "[CLS] the end [SEP]"
    with pytest.raises(InvalidRequest, match="token id at position 1 is outside this model's vocabulary"):
        tokenizer.join([1, description.vocab_size], skip_special=True)


def test_a_text_without_tokens_is_refused_where_the_model_adds_none(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    document = json.loads((directory / "tokenizer.json").read_text())
    (directory / "tokenizer.json").write_text(json.dumps({**document, "post_processor": None}))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    description = describe_model(locate_model(directory))
    tokenizer = Tokenizer.load(description)
    assert len(tokenizer.encode(["the"])[0]) == 1
    with pytest.raises(InvalidRequest, match=r"input\[1\]` has no tokens"):
        tokenizer.encode(["the", " "])
    with pytest.raises(InvalidRequest, match=r"input\[0\]` has no tokens"):
        complete(tokenizer.encode_with_spans_in_slices([""]))
    with pytest.raises(InvalidRequest, match=r"input\[1\]` has no tokens"):
        complete(PairTokenizer(tokenizer, description).encode_in_slices([("", "the"), ("", " ")]))


def test_without_truncation_a_long_text_is_refused_with_what_can_be_done(tokenizer: Tokenizer) -> None:
    tokenizer.encode(["the " * 46], truncation=Truncation(is_allowed=False))
    with pytest.raises(InputTooLong) as caught:
        tokenizer.encode(["the", "the " * 47], truncation=Truncation(is_allowed=False))
    assert caught.value.message == (
        "`input[1]` has 49 tokens; at most 48 are read. Shorten it, allow truncation, or ask for chunks."
    )
    assert (caught.value.token_count, caught.value.max_tokens, caught.value.field) == (49, 48, "input")


def test_a_prompt_goes_first_and_counts(tokenizer: Tokenizer) -> None:
    plain, prompted = tokenizer.encode(["the"])[0], tokenizer.encode(["the"], prompt="from this ")[0]
    assert plain.prompt_length == 0
    assert prompted.prompt_length == 3  # [CLS] from this
    assert len(prompted) == len(plain) + 2
    assert plain.key != prompted.key


def test_lowercasing_is_added_where_the_model_asks(tmp_path: Path) -> None:
    cased = describe_model(locate_model(save_tiny_bert(tmp_path / "model", TinyBert(lowercase=False))))
    lowered = Tokenizer.load(dataclasses.replace(cased, lowercase=True)).encode(["THE"])[0]
    assert lowered.token_ids.tolist() == Tokenizer.load(cased).encode(["the"])[0].token_ids.tolist()
    assert lowered.token_ids.tolist() != Tokenizer.load(cased).encode(["THE"])[0].token_ids.tolist()


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "fine \ud800"])
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"input\[1\]` is not valid Unicode") as caught:
        tokenizer.encode(["fine", text])
    assert caught.value.field == "input"
    with pytest.raises(InvalidRequest, match="The prompt is not valid Unicode"):
        tokenizer.encode(["fine"], prompt=text)


@pytest.mark.parametrize("value", [None, 3, b"bytes", ["nested"], ("a", "pair")])
def test_what_is_no_text_is_refused(tokenizer: Tokenizer, value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"input\[0\]` is not a text"):
        tokenizer.encode([value])  # type: ignore[list-item]


def test_own_ids_are_taken_as_they_are(tokenizer: Tokenizer, description: ModelDescription) -> None:
    last = description.vocab_size - 1
    sequence = tokenizer.from_ids((0, last, 7))
    assert sequence.token_ids.tolist() == [0, last, 7]
    assert sequence.token_type_ids.tolist() == [0, 0, 0]
    assert sequence.prompt_length == 0
    with pytest.raises(InvalidRequest, match=f"outside this model's vocabulary, 0 to {last}"):
        tokenizer.from_ids((0, last + 1, 7))


def test_a_token_behind_the_end_of_the_table_is_refused(
    tokenizer: Tokenizer, description: ModelDescription
) -> None:
    last = int(tokenizer.encode(["a"])[0].token_ids.max())
    Tokenizer.load(dataclasses.replace(description, vocab_size=last + 1))
    with pytest.raises(CorruptModel, match="adds tokens to texts whose ids or types are above"):
        Tokenizer.load(dataclasses.replace(description, vocab_size=last))


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("wrong", [-1, 10**9, 2**64, 10**30])
def test_ids_beyond_the_vocabulary_are_named(
    tokenizer: Tokenizer, description: ModelDescription, position: int, wrong: int
) -> None:
    ids = [1, 2, 3]
    ids[position] = wrong
    last = description.vocab_size - 1
    message = f"token id at position {position} is outside this model's vocabulary, 0 to {last}"
    with pytest.raises(InvalidRequest, match=message):
        tokenizer.from_ids(ids)


@pytest.mark.parametrize("wrong", [1.0, 1.5, True, None, "1"])
def test_ids_that_are_no_whole_numbers_are_named(tokenizer: Tokenizer, wrong: object) -> None:
    with pytest.raises(InvalidRequest, match="token id at position 1 is not a whole number"):
        tokenizer.from_ids([1, wrong])  # type: ignore[list-item]


def test_no_ids_at_all_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="has no token ids"):
        tokenizer.from_ids([])


def test_too_many_ids_are_cut_or_refused(tokenizer: Tokenizer) -> None:
    ids = [5 + index % 50 for index in range(MAX_TOKENS + 1)]
    sequence = tokenizer.from_ids(ids)
    assert sequence.token_ids.tolist() == ids[:MAX_TOKENS]
    with pytest.raises(InputTooLong, match="has 49 tokens"):
        tokenizer.from_ids(ids, truncation=Truncation(is_allowed=False))


def test_the_same_text_has_the_same_key_and_others_do_not(tokenizer: Tokenizer) -> None:
    texts = [*dict.fromkeys(mixed_texts(2, 50))]
    keys = [sequence.key for sequence in tokenizer.encode(texts)]
    assert keys == [sequence.key for sequence in tokenizer.encode(texts)]
    ids = {tuple(sequence.token_ids.tolist()) for sequence in tokenizer.encode(texts)}
    assert len(set(keys)) == len(ids)


def test_a_long_text_lets_other_threads_run(tokenizer: Tokenizer) -> None:
    text = "漢字" * 200_000
    finished = threading.Event()

    def encode() -> None:
        complete(split_in_slices(tokenizer, [text], special=True))
        finished.set()

    thread = threading.Thread(target=encode)
    start_s = last_s = time.perf_counter()
    longest_s = 0.0
    thread.start()
    while not finished.wait(0.001):
        now_s = time.perf_counter()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    thread.join()
    # Held all along, the interpreter lock would make the longest pause as long as the whole.
    assert longest_s < (last_s - start_s) / 2


def test_threads_agree(tokenizer: Tokenizer) -> None:
    texts = [*hard_texts()[:20], *long_texts(4, 20)]
    expected = [sequence.key for sequence in tokenizer.encode(texts)]
    results: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda: results.append([s.key for s in tokenizer.encode(texts)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


COUNT_THREADS = """
import os, sys
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.tokenizer import Tokenizer
before = len(os.listdir("/proc/self/task"))
tokenizer = Tokenizer.load(describe_model(locate_model(sys.argv[1])))
tokenizer.encode(["the model reads this"] * 64)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to count threads")
def test_no_pool_of_threads_is_started(description: ModelDescription) -> None:
    command = [sys.executable, "-c", COUNT_THREADS, str(description.directory)]
    counted = subprocess.run(command, capture_output=True, text=True, check=True)
    assert counted.stdout.strip() == "0"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": "1.0", "model": {"type": "Unheard"}}'])
def test_a_broken_tokenizer_is_named(tmp_path: Path, description: ModelDescription, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(CorruptModel, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.load(dataclasses.replace(description, tokenizer_file=path))


@pytest.mark.promise("malformed-input")
def test_a_token_without_an_embedding_is_refused_in_texts(tmp_path: Path) -> None:
    """transformers loads such a model too, and fails for such a text alone."""
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    edit_json(folder / "tokenizer_config.json", extra_special_tokens=["<ent>"])
    tokenizer = Tokenizer.load(describe_model(locate_model(folder)))
    assert tokenizer.encode(["a text of many words"])
    kept = "many words " * 300 + "<ent>", Truncation(keeps_end=True)
    for text, truncation in (("a text<ent>of words", Truncation()), kept):
        with pytest.raises(InvalidRequest, match=r"`input\[1\]` has the token '<ent>', for which the model"):
            tokenizer.encode(["a text", text], truncation=truncation)
