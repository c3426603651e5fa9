"""A tokenizer that could make a text a thousand times as long is refused before it reads one."""

import base64
import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from parity.test_vocabularies import CHARSMAP
from support.published import edit_json
from support.tiny_models import save_tiny_bert
from support.tokenizers_of_class import make_tokenizer
from tokenization.test_hostile_vocabularies import HEAD, UNIGRAM, varint
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.tokenizer_file import find_members
from vecmill.tokenization.building import charsmaps, growth
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.charsmaps import list_replacements
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.growth import MOST_GROWTH, check_growth, check_normalizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.tokenizer import Tokenizer as OurTokenizer

FILE = Path("tokenizer.json")
TEN_PIECES = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 1_000}
FOUR_TIMES = {"type": "Sequence", "normalizers": [TEN_PIECES] * 4}

LOADING = """
import resource, sys
from vecmill.directory_layouts import describe_model
from vecmill.errors import VecmillError
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
try:
    Tokenizer.load(describe_model(locate_model(sys.argv[1])))
except VecmillError as error:
    print(type(error).__name__, error.message)
"""


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("key", ['"normalizer"', r'"normali\u007aer"'], ids=["plain", "escaped"])
def test_normalizers_that_multiply_a_text_do_not_end_the_process(key: str, tmp_path: Path) -> None:
    """Also those that the library runs while it reads the file, to find a normalised added token."""
    directory = save_tiny_bert(tmp_path / "model")
    file = directory / "tokenizer.json"
    document = json.loads(file.read_text())
    del document["normalizer"]
    document["added_tokens"].append(
        {**document["added_tokens"][0], "id": 3, "content": "small", "normalized": True, "special": False}
    )
    rest = json.dumps(document)
    file.write_text(f"{rest[:-1]}, {key}: {json.dumps(FOUR_TIMES)}}}")
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(directory)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "UnsupportedModel" in done.stdout
    assert (
        f"{file}: the normalizer may make a text 1000 times as long with its stage 1, Replace" in done.stdout
    )


@pytest.mark.promise("malformed-input")
def test_added_tokens_of_which_the_normaliser_leaves_nothing_are_refused(tmp_path: Path) -> None:
    """With three tokens the library doubles its memory until the process ends, for the text "the"."""
    directory = save_tiny_bert(tmp_path / "model")
    file = directory / "tokenizer.json"

    added = json.loads(file.read_text())["added_tokens"]
    control = {**added[0], "id": 3, "content": "\x01", "special": False}  # which BERT removes
    edit_json(file, added_tokens=[*added, {**control, "normalized": True}])
    message = r"tokenizer\.json: the normaliser leaves nothing of the added token '\\x01', which would then"
    with pytest.raises(UnsupportedModel, match=message):
        read_tokenizer(describe_model(locate_model(directory)))
    edit_json(file, added_tokens=[*added, {**control, "normalized": False}])
    assert read_tokenizer(describe_model(locate_model(directory))).encode("a \x01 b").tokens


def replace(pattern: Any, content: str) -> Any:
    return normalizers.Replace(pattern, content)


def sequence(*stages: Any) -> Any:
    return normalizers.Sequence(list(stages))


ABSURD: dict[str, tuple[str, Any]] = {
    "replacements": ("normalizer", sequence(*[replace("a", "a" * 4)] * 4)),
    "empty pattern": ("normalizer", replace("", "x" * 64)),
    "pattern of no width": ("normalizer", replace(Regex("(?=.)"), "x" * 64)),
    "pattern that may have none": ("normalizer", sequence(*[replace(Regex("b*"), "x")] * 5)),
    "prepends": ("normalizer", normalizers.Prepend("x" * 128)),
    "many prepends": ("normalizer", sequence(*[normalizers.Prepend("x")] * 8)),
    "ideographs": ("normalizer", sequence(*[normalizers.BertNormalizer()] * 4)),
    "bytes": ("normalizer", sequence(*[normalizers.ByteLevel()] * 4)),
    "decomposed again": ("normalizer", sequence(*[normalizers.NFKD(), replace("\u0627", "\ufdfa")] * 2)),
    "stages": ("normalizer", sequence(*[normalizers.Lowercase()] * 257)),
    "nested": ("normalizer", sequence(sequence(sequence(replace("a", "b" * 200))))),
    "byte levels": ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.ByteLevel()] * 4)),
    "marks": ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Metaspace()] * 8)),
    "decoders": ("decoder", decoders.Sequence([decoders.Replace("a", "aaaa")] * 2)),
    "decoders of no width": ("decoder", decoders.Replace(Regex("$|^"), "x" * 64)),
    "suffixes": ("decoder", decoders.Sequence([decoders.BPEDecoder("")] * 2)),
}


@pytest.mark.parametrize("name", ABSURD)
def test_stages_that_multiply_a_text_are_named(name: str) -> None:
    part, stage = ABSURD[name]
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    setattr(tokenizer, part, stage)
    with pytest.raises(UnsupportedModel, match=rf"tokenizer\.json: the {part} (may make a|has 257)"):
        check_growth(tokenizer, FILE)


TEMPLATES: dict[str, tuple[Any, str]] = {
    "text twice": (processors.TemplateProcessing("$A $A", special_tokens=[]), "repeats a text"),
    "pair twice": (processors.TemplateProcessing("$A", "$A $B $A", special_tokens=[]), "repeats a text"),
    "many": (processors.TemplateProcessing("x " * 300 + "$A", special_tokens=[("x", 1)]), "adds 300 tokens"),
    "many of a pair": (
        processors.TemplateProcessing("$A", "$A $B" + " x" * 300, special_tokens=[("x", 1)]),
        "adds 300 tokens",
    ),
    "many in one": (
        processors.TemplateProcessing(
            "x $A", special_tokens=[{"id": "x", "ids": [1] * 999, "tokens": ["x"] * 999}]
        ),
        "adds 999 tokens",
    ),
    "many processors": (
        processors.Sequence([processors.BertProcessing(("x", 1), ("x", 1))] * 100),
        "adds 400 tokens",
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_that_multiply_a_text_are_refused(name: str) -> None:
    template, message = TEMPLATES[name]
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    tokenizer.post_processor = template
    with pytest.raises(UnsupportedModel, match=rf"tokenizer\.json: the post_processor {message}"):
        check_growth(tokenizer, FILE)


ALBERT = sequence(
    replace("``", '"'),
    replace("''", '"'),
    normalizers.NFKD(),
    normalizers.StripAccents(),
    normalizers.Lowercase(),
    normalizers.Precompiled(CHARSMAP),
    replace(Regex(" {2,}"), " "),
)
ORDINARY = {
    "albert": (ALBERT, 18),
    "llama": (sequence(normalizers.Prepend("\u2581"), replace(" ", "\u2581")), 2),
    "clip": (sequence(normalizers.NFC(), replace(Regex(r"\s+"), " "), normalizers.Lowercase()), 4),
    "bert": (normalizers.BertNormalizer(), 12),
    "arabic": (sequence(*[replace(Regex("[\u0622\u0623\u0625]"), "\u0627")] * 40), 1),
    "newlines": (sequence(replace("\n", "</n>"), replace(" ", "</_>")), 16),
    "bytes": (sequence(normalizers.NFKC(), normalizers.ByteLevel()), 72),
    "none": (None, 1),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_normalizers_stay_far_below_the_limit(name: str) -> None:
    normalizer, factor = ORDINARY[name]
    assert check_normalizer(normalizer, FILE) == factor < MOST_GROWTH


CLASSES = (
    *("AlbertTokenizer", "BertTokenizer", "CamembertTokenizer", "DebertaV2Tokenizer", "GemmaTokenizer"),
    *("GPT2Tokenizer", "HerbertTokenizer", "LlamaTokenizer", "MBartTokenizer", "MPNetTokenizer"),
    *("NllbTokenizer", "Qwen2Tokenizer", "RobertaTokenizer", "T5Tokenizer", "XLMRobertaTokenizer"),
    "XLNetTokenizer",
)


@pytest.mark.parametrize("class_name", CLASSES)
def test_the_tokenizers_of_all_classes_are_accepted(class_name: str) -> None:
    check_growth(make_tokenizer(class_name).backend_tokenizer, FILE)


# What stages make most of, and what they look for.
LETTERS = [*"ab \n``x\ufdfa\u1f82\u0130\u4e2d\uf900\u00bc\U0001d160", "e\u0301", "\uac01", "\u0627", "."]


def random_text(dice: random.Random) -> str:
    return "".join(dice.choices(LETTERS, k=dice.randint(1, 12)))


PATTERNS = [
    ".",
    "a*",
    "(?=a)",
    "$",
    "a|b",
    r"\s+",
    r"\b",
    "[^a]{2}",
    r"\p{L}",
    "(?:a|b?)",
    "(a)?x",
    "[ab]*?",
    "b{0}",
]
NORMALIZERS: list[Callable[[random.Random], Any]] = [
    *(lambda _, form=form: getattr(normalizers, form)() for form in ("NFC", "NFD", "NFKC", "NFKD")),
    *(lambda _, name=name: getattr(normalizers, name)() for name in ("Lowercase", "StripAccents", "Nmt")),
    lambda dice: normalizers.BertNormalizer(strip_accents=dice.choice([None, True, False])),
    lambda _: normalizers.ByteLevel(),
    lambda _: normalizers.Precompiled(CHARSMAP),
    lambda dice: normalizers.Prepend(random_text(dice)[:3]),
    lambda dice: replace(random_text(dice)[: dice.randint(0, 2)], random_text(dice)[: dice.randint(0, 4)]),
    lambda dice: replace(Regex(dice.choice(PATTERNS)), random_text(dice)[: dice.randint(0, 4)]),
]
PRE_TOKENIZERS: list[Callable[[random.Random], Any]] = [
    lambda dice: pre_tokenizers.ByteLevel(dice.random() < 0.5, use_regex=dice.random() < 0.5),
    lambda dice: pre_tokenizers.Metaspace(prepend_scheme=dice.choice(["always", "first", "never"])),
    lambda dice: pre_tokenizers.Split(Regex("."), dice.choice(["isolated", "merged_with_next"])),
    lambda _: pre_tokenizers.Punctuation(),
]
DECODERS: list[Callable[[random.Random], Any]] = [
    lambda dice: decoders.Replace(random_text(dice)[:1], random_text(dice)[:3]),
    lambda dice: decoders.Replace(Regex(dice.choice(PATTERNS)), random_text(dice)[:3]),
    lambda dice: decoders.BPEDecoder(dice.choice(["", "a"])),
    lambda dice: decoders.CTC(dice.choice(["", "a"]), dice.choice(["", "b"])),
    lambda _: decoders.WordPiece(""),
    lambda _: decoders.Fuse(),
    lambda _: decoders.Metaspace(),
    lambda _: decoders.ByteLevel(),
    lambda _: decoders.ByteFallback(),
]


def bound_of(part: str, stage: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """The greatest growth that is found for a part of a tokenizer."""
    found = [1.0]
    check = growth.Part.check

    def note(part: growth.Part, *values: Any) -> float:
        found.append(check(dataclasses.replace(part, most=10**9), *values))
        return found[-1]

    monkeypatch.setattr(growth.Part, "check", note)
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    setattr(tokenizer, part, stage)
    check_growth(tokenizer, FILE)
    monkeypatch.undo()
    return max(found)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < 100 else pytest.mark.full) for seed in range(400)]
)
def test_no_text_grows_beyond_the_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)

    def draw(kinds: list[Callable[[random.Random], Any]]) -> list[Any]:
        return [dice.choice(kinds)(dice) for _ in range(dice.randint(1, 3))]

    normalizer = sequence(*draw(NORMALIZERS))
    splits = pre_tokenizers.Sequence(draw(PRE_TOKENIZERS))
    decoder = decoders.Sequence(draw(DECODERS))
    bounds = [
        bound_of(part, stage, monkeypatch)
        for part, stage in (("normalizer", normalizer), ("pre_tokenizer", splits), ("decoder", decoder))
    ]
    for _ in range(20):
        text, tokens = random_text(dice), [random_text(dice) for _ in range(dice.randint(1, 5))]
        for made, read, bound in (
            (lambda text=text: normalizer.normalize_str(text), text, bounds[0]),
            (lambda text=text: "".join(word for word, _ in splits.pre_tokenize_str(text)), text, bounds[1]),
            (lambda tokens=tokens: decoder.decode(tokens), "".join(tokens), bounds[2]),
        ):
            assert length_of(made) <= bound * len(read), (normalizer, splits, decoder, read)


def length_of(make: Callable[[], str]) -> int:
    """The length of what the library makes; 0 if it panics, as it does at some patterns without width."""
    try:
        return len(make())
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return 0


PATTERNS_WITH_WIDTH = {
    ".": True, "a": True, r"\s+": True, " {2,}": True, r"\s{2,}|[\n\r\t]": True, r"\p{L}+": True,
    r"[\p{L}\d]": True, "^a": True, "(?:ab)+": True, "(?i:a)": True, r"\.": True, "a+?": True,
    "": False, "a*": False, "a?": False, "a|": False, "^": False, "$": False, r"\b": False, "a{0,2}": False,
    "(?=a)": False, "(?:a?)": False, "a{0}": False, r"\Ga": False, r"a\K": False, r"(a)\1": False,
    "[a[]b]c]*": False, "[a&&b]": False, "(?x) ": False, "(?#a)": False, "a)": False, r"\R": False,
    "(?<n>a*)": False, "(" * 99 + "a" + ")" * 99: True,
}  # fmt: skip


PATTERNS_WITH_WIDTH |= {
    "a{2}?": False,  # in Ruby's syntax: twice or not at all
    "a{2,3}": True,
    "a??": False,
    "a++": True,
    "(a|b)+c?": True,
    "(a|)": False,
    "(": False,
    "a{00}": False,
    "(a?|b?)" * 1_000: False,
    "(a?|b?)" * 1_000 + "c": True,
    "(" * 4_000 + ")" * 4_000: False,
}


@pytest.mark.parametrize("pattern", PATTERNS_WITH_WIDTH, ids=lambda pattern: pattern[:20])
def test_patterns_without_a_known_width_count_as_insertions(pattern: str) -> None:
    assert growth._consumes(pattern) is PATTERNS_WITH_WIDTH[pattern]


def test_a_table_counts_by_what_it_makes_of_decomposed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = base64.b64encode(CHARSMAP).decode()
    table = dict(list_replacements(encoded) or ())
    normalizer = normalizers.Precompiled(CHARSMAP)
    assert table
    for found, made in table.items():
        assert normalizer.normalize_str(found) == made
    longer = CHARSMAP.rstrip(b"\0") + b"x" * 1_000 + b"\0"  # the last of the replacements
    with pytest.raises(UnsupportedModel, match=r"may make a text .* stage 1, Precompiled"):
        check_normalizer(normalizers.Precompiled(longer), FILE)
    monkeypatch.setattr(charsmaps, "_MOST_KEYS", 1)
    with pytest.raises(UnsupportedModel, match="a million or more times"):
        check_normalizer(normalizer, FILE)


def test_a_stage_that_shortens_some_texts_allows_no_other_stage_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "list_replacements", lambda _: [("abcd", "")])
    longer = sequence(normalizers.Precompiled(CHARSMAP), replace("long", ""), replace("x", "x" * 200))
    with pytest.raises(UnsupportedModel, match="its stage 3, Replace"):
        check_normalizer(longer, FILE)


def test_the_table_of_a_vocabulary_file_is_looked_at_before_tokens_are_added(tmp_path: Path) -> None:
    table = CHARSMAP.rstrip(b"\0") + b"x" * 1_000 + b"\0"
    settings = b"\x12" + varint(len(table)) + table
    (tmp_path / "tokenizer.model").write_bytes(HEAD + UNIGRAM + b"\x1a" + varint(len(settings)) + settings)
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.model: the normalizer may make a text"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "tokenizer.model", "", {}))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 3, 2**20])
def test_members_of_a_document_are_found_where_they_are(
    indent: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vecmill.models import tokenizer_file

    monkeypatch.setattr(tokenizer_file, "_CHUNK", chunk)
    document = {
        "a": {"normalizer": 1, '"}': ["normalizer", {"x": "\\"}]},
        'normalizer"': 2,
        "normalizer": {"type": "a, b: {\"'\\", "normalizers": [{}, [], "]}"]},
        "\\": "normalizer",
        "last": [[1, {"normalizer": 3}]],
    }
    content = json.dumps(document, indent=indent).encode()
    content = content.rstrip(b"}\n ") + rb', "\u006eormalizer" : null }'
    found = [json.loads(value) for value in find_members(content, "normalizer")]
    assert found == [document["normalizer"], None]
    assert [json.loads(value) for value in find_members(content, "last")] == [document["last"]]
    assert list(find_members(b"", "a")) == list(find_members(b'["a"', "a")) == []


def test_a_file_with_an_ordinary_normalizer_is_read_as_before(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    description = describe_model(locate_model(directory))
    before = read_tokenizer(description).encode("A small caf\u00e9\u4e2d").ids
    edit_json(
        description.tokenizer_file,
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
    )
    assert read_tokenizer(description).encode("A small caf\u00e9\u4e2d").ids == before
    assert len(OurTokenizer.load(description).encode(["a"])[0]) == 3
