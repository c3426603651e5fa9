"""Whatever the tokenizers library raises for a text is that text's error, and the tokenizer goes on."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.failing_library import POISON, FailingLibrary, LibraryPanic
from support.tiny_models import save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidRequest, RequestTooLarge, TokenizationFailed
from vecmill.models import ModelDescription, locate_model
from vecmill.models.heads import ChatTemplate
from vecmill.tokenization import library_calls
from vecmill.tokenization.chat_template import compile_chat
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import Reading, complete
from vecmill.tokenization.shared import LoadedTokenizer
from vecmill.tokenization.split_texts import cut_texts_in_slices, split_in_slices
from vecmill.tokenization.tokenizer import Tokenizer

POISON_ID = 7
LONG = "a word " * 5_000


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("model"))))


def make_tokenizer(description: ModelDescription, error: type[BaseException] = LibraryPanic) -> Tokenizer:
    """The tokenizer of a model, whose library raises `error` for some texts."""
    library = LoadedTokenizer.read(description).library
    failing = FailingLibrary(library, error, poison_id=POISON_ID)
    return Tokenizer(LoadedTokenizer(failing, truncates_left=False, highest_id=0), description)


WORK: dict[str, Callable[[Tokenizer, str], Any]] = {
    "encode": lambda tokenizer, text: tokenizer.encode(["a", text]),
    "prompt": lambda tokenizer, text: tokenizer.encode(["a", "b"], prompt=text),
    "spans": lambda tokenizer, text: complete(tokenizer.encode_with_spans_in_slices([text])),
    "split": lambda tokenizer, text: complete(split_in_slices(tokenizer, [text], special=True)),
    "cut": lambda tokenizer, text: complete(cut_texts_in_slices(tokenizer, [text], 100_000)),
    "places": lambda tokenizer, text: complete(
        tokenizer.read_in_slices(text, "`input`", Reading(100_001, places=True))
    ),
    "ids": lambda tokenizer, text: complete(tokenizer.read_in_slices(text, "`input`", Reading())),
    "one": lambda tokenizer, text: tokenizer.encode_one(text, "`input`"),
}


@pytest.mark.parametrize("error", [LibraryPanic, Exception, MemoryError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("text", [f"a {POISON} b", f"{POISON} {LONG}"], ids=["short", "long"])
def test_what_the_library_raises_is_the_error_of_the_text(
    name: str, text: str, error: type[BaseException], description: ModelDescription
) -> None:
    tokenizer, work = make_tokenizer(description, error), WORK[name]
    with pytest.raises(TokenizationFailed, match="The tokenizer failed for this text") as raised:
        work(tokenizer, text)
    assert isinstance(raised.value.__cause__, error)
    work(tokenizer, text.replace(POISON, "bread"))


def test_pairs_and_token_ids_fail_alike(description: ModelDescription) -> None:
    tokenizer = make_tokenizer(description)
    pairs = PairTokenizer(tokenizer, description)
    for pair in ((POISON, "b"), ("a", f"{POISON} {LONG}")):
        with pytest.raises(TokenizationFailed):
            complete(pairs.encode_in_slices([("a", "b"), pair]))
    with pytest.raises(TokenizationFailed):
        tokenizer.join([1, POISON_ID, 2], skip_special=False)
    assert len(complete(pairs.encode_in_slices([("a", "b")]))) == 1
    assert tokenizer.join([1, 2], skip_special=False)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit], ids=str
)
def test_what_ends_a_task_or_the_process_passes(
    error: type[BaseException], description: ModelDescription
) -> None:
    tokenizer = make_tokenizer(description, error)
    with pytest.raises(error):
        tokenizer.encode_one(POISON, "`input`")


def test_a_chat_template_that_fails_for_a_pair_is_the_error_of_the_pair(tmp_path: Path) -> None:
    source = (
        "{% for message in messages %}{{ message.content }}"
        f"{{% if '{POISON}' in message.content %}}{{{{ none + 1 }}}}{{% endif %}}{{% endfor %}}"
    )
    render = compile_chat(ChatTemplate(tmp_path / "chat_template.jinja", source, False, (), ()))
    with pytest.raises(TokenizationFailed, match="The model's chat template failed for this text"):
        render("", "a", POISON)
    assert render("", "a", "b") == "ab"


def test_half_of_a_surrogate_pair_stays_the_error_of_whoever_sent_it(description: ModelDescription) -> None:
    with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
        make_tokenizer(description).encode(["\ud800"])


def test_the_log_names_the_failure_and_no_text(
    description: ModelDescription, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TokenizationFailed):
        make_tokenizer(description).encode([f"{POISON} secret"])
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "the tokenizer failed for a text of 13 characters: LibraryPanic" in record.getMessage()
    assert "unwrap" not in caplog.text  # a message may have parts of the text


def test_a_tokenizer_whose_library_panicked_answers_as_before(description: ModelDescription) -> None:
    """The panic is real: a pattern that tries more than ten million ways to match."""
    from tokenizers import Regex, pre_tokenizers

    library = LoadedTokenizer.read(description).library
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("(?:x|x)+!"), "isolated"), library.pre_tokenizer]
    )
    tokenizer = Tokenizer(LoadedTokenizer(library, truncates_left=False, highest_id=0), description)
    texts = ["a small text", "another one of them", "x!"]
    before, found = tokenizer.encode(texts), []

    def panic_and_go_on() -> None:
        with pytest.raises(TokenizationFailed):
            tokenizer.encode([f"a {'x' * 40} b"])
        found.append(tokenizer.encode(texts))

    threads = [threading.Thread(target=panic_and_go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.append(tokenizer.encode(texts))
    assert len(found) == 3
    for sequences in found:
        assert [each.token_ids.tolist() for each in sequences] == [each.token_ids.tolist() for each in before]


def test_token_ids_of_too_long_a_text_are_refused(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.load(description)
    ids = tokenizer.encode(["a small text"])[0].token_ids.tolist()
    text = tokenizer.join(ids, skip_special=False)
    monkeypatch.setattr(library_calls, "MOST_DECODED", 40)
    assert tokenizer.join(ids, skip_special=False) == text
    with pytest.raises(RequestTooLarge, match="`input` has token ids of more than 40 characters in all"):
        tokenizer.join(ids * 9, skip_special=False)


def test_a_decoder_that_panics_goes_on(description: ModelDescription) -> None:
    from tokenizers import decoders

    library = LoadedTokenizer.read(description).library
    library.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip("a", 0, 5)])
    tokenizer = Tokenizer(LoadedTokenizer(library, truncates_left=False, highest_id=0), description)
    ids = tokenizer.encode(["a"])[0].token_ids.tolist()[1:-1]
    for _ in range(2):
        with pytest.raises(TokenizationFailed):
            tokenizer.join(ids, skip_special=False)
        assert tokenizer.join([*ids] * 9, skip_special=False)
