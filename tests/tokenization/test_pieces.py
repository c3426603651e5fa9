"""A text that is read piece by piece, or only as far as the model reads, has the tokens of the whole text."""

import dataclasses
import functools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.texts import hard_texts, mixed_texts, random_text
from support.tokenizers_of_class import make_tokenizer
from support.tokenizers_of_kind import save_tokenizer
from vecmill.directory_layouts import describe_model
from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.models import ModelDescription, locate_model
from vecmill.models.heads import PairTemplate
from vecmill.requests import Truncation
from vecmill.tokenization import pieces
from vecmill.tokenization.boundaries import Boundaries
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import Body, Known, PieceReader, Reading, complete
from vecmill.tokenization.tokenizer import Tokenizer

CLASSES = (
    *("AlbertTokenizer", "BertTokenizer", "CamembertTokenizer", "DebertaV2Tokenizer", "GemmaTokenizer"),
    *("GPT2Tokenizer", "HerbertTokenizer", "LlamaTokenizer", "MBartTokenizer", "MBart50Tokenizer"),
    *("MPNetTokenizer", "NllbTokenizer", "Qwen2Tokenizer", "RobertaTokenizer", "T5Tokenizer"),
    *("XLMRobertaTokenizer", "XLNetTokenizer"),
)
KINDS = ("byte_level", "byte_fallback", "unigram", "word_piece")
# Without rules: these encode a whole text as one word.
UNSPLIT = ("class GemmaTokenizer", "class LlamaTokenizer", "kind byte_fallback", "llama prepended the")


@functools.cache
def make_library(name: str) -> Any:
    """A tokenizer of the tokenizers library: of a class, of a kind, or the served model's."""
    from tokenizers import Tokenizer as Library

    sort, _, rest = name.partition(" ")
    if sort == "kind":
        folder = Path(_folder()) / rest
        save_tokenizer(folder, rest, mixed_texts(1, 100), longest=100)
        return Library.from_file(str(folder / "tokenizer.json"))
    if sort == "gemma":
        document = json.loads(make_library("class GemmaTokenizer").to_str())
        if rest == "apart":
            keep_words_apart(document["model"])
        return Library.from_str(json.dumps(document))
    if sort == "llama":
        return make_llama(*rest.split())
    if sort == "runs":
        return add_runs(Library.from_str(make_library(rest).to_str()), is_gemma=rest.startswith("gemma"))
    if sort == "class":
        class_name, _, options = rest.partition(" ")
        made = make_tokenizer(class_name)
        contents = {"tokenizer.json": made.backend_tokenizer.to_str().encode()}
        settings = json.loads(options or "{}")
        return build_tokenizer(TokenizerFiles(Path(), "tokenizer.json", contents, class_name, settings))
    description = describe_model(locate_model())
    return Tokenizer.load(description).library


def add_runs(library: Any, *, is_gemma: bool) -> Any:
    """Add tokens for runs of whitespace, as in Gemma, or as in GPT-NeoX and ModernBERT."""
    from tokenizers import AddedToken

    spaces = ["\n", "\n\n", "\t"] if is_gemma else [" " * count for count in range(2, 25)]
    library.add_tokens([AddedToken(run, normalized=not is_gemma, special=False) for run in spaces])
    return library


def make_llama(scheme: str, *added: str) -> Any:
    """Llama's tokenizer by its class, with the `scheme`, or as its tokenizer.json was published."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

    document = json.loads(make_library("class LlamaTokenizer").to_str())
    keep_words_apart(document["model"])
    if scheme == "prepended":
        mark = {"type": "Prepend", "prepend": "\u2581"}
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        document |= {"normalizer": {"type": "Sequence", "normalizers": [mark, spaces]}, "pre_tokenizer": None}
    else:
        document["pre_tokenizer"]["prepend_scheme"] = scheme
    library = Library.from_str(json.dumps(document))
    library.add_tokens([AddedToken(token, normalized=False) for token in added])
    return library


def keep_words_apart(model: dict[str, Any]) -> None:
    """Take out the tokens that reach from a letter over the space after it, which large vocabularies lack."""

    def is_apart(piece: str) -> bool:
        return not re.search("[^\u2581]\u2581", piece)

    pieces = [piece for piece in model["vocab"] if is_apart(piece)]
    model["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    model["merges"] = [merge for merge in model["merges"] if is_apart("".join(merge))]


@functools.cache
def _folder() -> str:
    import tempfile

    return tempfile.mkdtemp()


LIBRARIES = (
    "embedded",
    "gemma apart",
    *(
        f"llama {scheme}"
        for scheme in ("first", "always", "never", "prepended", "prepended the", "always the")
    ),
    "runs gemma apart",
    "runs class GPT2Tokenizer",
    *(f"kind {kind}" for kind in KINDS),
    *(f"class {name}" for name in CLASSES),
    'class BertTokenizer {"do_lower_case": false, "tokenize_chinese_chars": false}',
    'class BertTokenizer {"strip_accents": true}',
    'class RobertaTokenizer {"add_prefix_space": true}',
    'class DebertaV2Tokenizer {"split_by_punct": true, "do_lower_case": true, "add_prefix_space": false}',
    'class AlbertTokenizer {"keep_accents": true, "do_lower_case": false}',
    'class T5Tokenizer {"add_prefix_space": false}',
)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return make_library(request.param)


def encoder(library: Any) -> Callable[[str, bool], Any]:
    def encode(text: str, places: bool) -> Any:
        return library.encode(text, add_special_tokens=False)

    return encode


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 20)
    monkeypatch.setattr(pieces, "SHORTEST_PIECE", 8)
    monkeypatch.setattr(pieces, "SHORTEST_SHARED", 4)


@pytest.mark.parametrize("name", LIBRARIES)
def test_rules_are_known_for_all_but_those_that_split_nothing(name: str) -> None:
    assert (Boundaries.of(make_library(name)) is None) is (name in UNSPLIT)


def places(body: Body) -> list[tuple[int, int]]:
    return [(start, end) for start, end in body.offsets.tolist()]


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("count", [10, pytest.param(40, marks=pytest.mark.full)])
def test_tokens_are_those_of_the_whole_text(library: Any, count: int, small_pieces: None) -> None:
    boundaries = Boundaries.of(library)
    if boundaries is None:
        return
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    reader, several = PieceReader(encoder(library), boundaries), 0
    for text in [*hard_texts(), *mixed_texts(4, 10), *(random_text(draw, 60) for _ in range(count))]:
        if len(text) > 2_000:
            continue
        whole = library.encode(text, add_special_tokens=False)
        slices = list(reader.read(text, Reading(places=True)))
        assert sum(slices) == len(text)
        several += len(slices) > 1
        body = complete(reader.read(text, Reading(places=True)))
        assert (body.ids, body.words, places(body)) == (whole.ids, whole.tokens, whole.offsets), text
        room = draw.randint(0, 30)
        first = complete(reader.read(text, Reading(room)))
        last = complete(reader.read(text, Reading(room, from_end=True, places=True)))
        assert first.ids == whole.ids[: len(first)]
        assert len(first) >= min(room, len(whole))
        assert last.ids == whole.ids[len(whole) - len(last) :]
        assert places(last) == whole.offsets[len(whole) - len(last) :]
        assert len(last) >= min(room, len(whole))
    assert several > 10


def test_each_boundary_is_one(library: Any) -> None:
    boundaries = Boundaries.of(library)
    if boundaries is None:
        return
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    encode, found = encoder(library), 0
    for _ in range(30):
        text = random_text(draw, 40)
        whole, place = library.encode(text, add_special_tokens=False), 0
        while (place := boundaries.first(text, place, len(text)) or 0) > 0:
            left = encode(text[:place], True)
            skipped = len(encode(text[place - 1 : place], True))
            right = encode(text[place - 1 :], True)
            assert left.ids + right.ids[skipped:] == whole.ids, (text, place)
            found += 1
    assert found > 10


@pytest.mark.parametrize("window", [4, 32_768])
def test_first_and_last_agree(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr("vecmill.tokenization.boundaries.SEARCHED_CHARACTERS", window)
    boundaries = Boundaries.of(make_library("embedded"))
    assert boundaries is not None
    text = "one two  three漢字, four"
    places = [3, 15, 17]
    for start in range(len(text)):
        for end in range(start, len(text) + 1):
            between = [place for place in places if start < place < end]
            assert boundaries.first(text, start, end) == (between[0] if between else None)
            assert boundaries.last(text, start, end) == (between[-1] if between else None)


def describe(kind: str, max_tokens: int, *, truncate_left: bool) -> ModelDescription:
    plain = dataclasses.replace(
        describe_model(locate_model()), max_tokens=max_tokens, truncate_left=truncate_left
    )
    if kind == "template":
        template = PairTemplate(
            start="Judge. ", body="{instruction} the query {query} and {document}", end=" now", instruction=""
        )
        return dataclasses.replace(plain, pair_template=template)
    return plain


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("kind", ["texts", "pairs", "template"])
@pytest.mark.parametrize("truncate_left", [False, True])
def test_sequences_are_those_of_whole_texts(
    monkeypatch: pytest.MonkeyPatch, kind: str, truncate_left: bool
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for max_tokens in (20, 21, 60):
        description = describe(kind, max_tokens, truncate_left=truncate_left)
        tokenizer = Tokenizer.load(description)
        prompts = ["", random_text(draw, 10), "a prompt of several words " * 3]
        queries = [random_text(draw, 10), "one query for all documents " * 2]
        texts = [random_text(draw, size) for size in (0, 1, 5, 20, 40, 60)]

        def encode(prompt: str, query: str, truncation: Truncation) -> list[list[Any]]:
            if kind == "texts":
                sequences = tokenizer.encode(texts, prompt=prompt, truncation=truncation)  # noqa: B023
            else:
                pairs = [(query, text) for text in texts]  # noqa: B023
                reader = PairTokenizer(tokenizer, description)  # noqa: B023
                sequences = complete(reader.encode_in_slices(pairs, prompt=prompt, truncation=truncation))
            return [[s.token_ids.tolist(), s.token_type_ids.tolist(), s.prompt_length] for s in sequences]

        for prompt in prompts:
            for query in queries:
                truncation = Truncation(keeps_end=draw.choice([None, True, False]))
                found = []
                for longest, shortest, shared in ((10**9, 10**9, 10**9), (20, 8, 4)):
                    monkeypatch.setattr(pieces, "LONGEST_PIECE", longest)
                    monkeypatch.setattr(pieces, "SHORTEST_PIECE", shortest)
                    monkeypatch.setattr(pieces, "SHORTEST_SHARED", shared)
                    found.append(encode(prompt, query, truncation))
                assert found[0] == found[1]


def test_what_all_texts_begin_with_is_tokenised_once() -> None:
    read: list[str] = []

    class Counted(Tokenizer):
        def _encode_part(self, text: str, places: bool) -> Any:
            read.append(text)
            return super()._encode_part(text, places)

    prompt = "an instruction of a few words, " * 500
    tokenizer = Counted.load(describe("template", 10_000, truncate_left=False))
    tokenizer.encode([f"text number {number}" for number in range(50)], prompt=prompt)
    assert sum(map(len, read)) < len(prompt) + 50 * 100
    read.clear()
    pairs = PairTokenizer(tokenizer, describe("template", 10_000, truncate_left=False))
    complete(pairs.encode_in_slices([(prompt, f"document number {number}") for number in range(50)]))
    assert sum(map(len, read)) < 2 * len(prompt) + 50 * 100


def test_a_long_text_is_read_as_far_as_the_model_reads() -> None:
    read: list[int] = []

    class Counted(Tokenizer):
        def _encode_part(self, text: str, places: bool) -> Any:
            read.append(len(text))
            return super()._encode_part(text, places)

    tokenizer = Counted.load(describe_model(locate_model()))
    for truncation in (Truncation(), Truncation(keeps_end=True), Truncation(max_tokens=10)):
        read.clear()
        tokenizer.encode(["a long text " * 80_000], truncation=truncation)
        assert sum(read) < 5_000
    text = "a long text " * 20_000 + "\ud800"
    with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
        tokenizer.encode([text])
    with pytest.raises(InputTooLong) as refusal:
        tokenizer.encode(["a long text " * 20_000], truncation=Truncation(is_allowed=False))
    assert refusal.value.token_count == 60_002


def test_a_shared_piece_where_texts_begin_is_not_taken_for_the_same_piece_later(small_pieces: None) -> None:
    """The tokenizer puts a space before a text, so a newline at the beginning has other tokens."""
    library = make_library('class RobertaTokenizer {"add_prefix_space": true}')
    boundaries = Boundaries.of(library)
    assert boundaries is not None
    reader, known = PieceReader(encoder(library), boundaries), Known()
    prompt = "\nfour twentythreeletterslong" * 4
    for text in (f"{prompt} one", f"{prompt} two"):
        found = complete(reader.read(text, Reading(), len(prompt), known))
        assert found.ids == library.encode(text, add_special_tokens=False).ids
    assert len(known) < 4
