"""A vocabulary file that is damaged, hostile or of another kind is refused before it takes time or memory."""

import base64
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.test_vocabularies import CHARSMAP
from support.published import edit_json
from support.texts import SCRAPS
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizers_of_class import make_tokenizer
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel, VecmillError
from vecmill.models import ModelDescription, locate_model
from vecmill.models.tokenizer_file import LONGEST_PIECE, check_strings
from vecmill.tokenization.building import merges
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.charsmaps import check_charsmaps
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
UNIGRAM, BYTE_PAIRS, WORDS = (bytes([0x12, 2, 0x18, kind]) for kind in (1, 2, 3))
NO_TABLE = b"\x1a\x06\x12\x04\xff\xff\xff\xff"  # of more units than it has


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def piece(text: str | bytes, score: float = 0.0, kind: int = NORMAL) -> bytes:
    """A piece of a sentencepiece model."""
    encoded = text.encode() if isinstance(text, str) else text
    fields = (
        b"\n" + varint(len(encoded)) + encoded + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    )
    return b"\n" + varint(len(fields)) + fields


HEAD = piece("<unk>", kind=UNKNOWN) + piece("<s>", kind=CONTROL) + piece("</s>", kind=CONTROL)
RANKS = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))

HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "cut": ("LlamaTokenizer", (HEAD + piece("a"))[:-3], "cannot be read as a sentencepiece model"),
    "nested": ("", b"\n" + varint(10**6) + b"\x0b" * 10**6, "cannot be read as a sentencepiece model"),
    "empty": ("LlamaTokenizer", b"", "it has no pieces"),
    "ten_million": ("", b"\n\0" * 10_000_000, "more than 1048576 pieces"),
    "empty_piece": ("", HEAD + piece(""), "piece 3 is '', which is empty"),
    "twice": ("XLMRobertaTokenizer", HEAD + piece("a") + piece("a"), "piece 4 is 'a', which is .* twice"),
    "no_text": ("", HEAD + piece(b"\xff") + BYTE_PAIRS, "piece 3 is .*, which is .*no text"),
    "not_a_number": ("T5Tokenizer", HEAD + piece("a", float("nan")), "score of piece 3 .* is nan"),
    "infinite": ("LlamaTokenizer", HEAD + piece("a", float("-inf")) + BYTE_PAIRS, "piece 3 .* is -inf"),
    "long_piece": ("", HEAD + piece("a" * 10_000), "piece 3 has more than 8192 bytes"),
    "many_long_pieces": (
        "",
        HEAD + b"".join(piece(f"{n:08000}") for n in range(1_100)),
        "more than 8 MiB of",
    ),
    "much_work": (
        "LlamaTokenizer",
        HEAD + b"".join(piece("a" * n) for n in range(1, 1_000)) + BYTE_PAIRS,
        "the pieces are too long",
    ),
    "unknown_outside": ("", HEAD + UNIGRAM + b"\x12\x03\xc0\x02\x09", "makes no tokenizer: .*unk_id"),
    "no_table": ("", HEAD + UNIGRAM + NO_TABLE, "makes no tokenizer: .*precompiled_charsmap"),
    "no_base64": ("LlamaTokenizer", RANKS + b"Q! 256\n", "line 257 must have a new token in base64"),
    "token_twice": ("", RANKS + b"QQ== 256\n", "line 257 must have a new token"),
    "negative_rank": ("", RANKS + b"QUI= -1\n", "the rank 256"),
    "rank_left_out": ("", RANKS + b"QUI= 257\n", "the rank 256"),
    "huge_rank": ("LlamaTokenizer", RANKS + b"QUI= " + b"9" * 10**6 + b"\n", "the rank 256"),
    "no_rank": ("", RANKS + b"QUI=", "the rank 256"),
    "long_token": (
        "",
        RANKS + base64.b64encode(b"a" * 20_000) + b" 256\n",
        "the pieces are too long",
    ),
    "ten_million_lines": ("", RANKS + b"\n" * 10_000_000, "lines, the limit for a vocabulary"),
}


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_vocabularies_are_refused(name: str, tmp_path: Path) -> None:
    class_name, content, message = HOSTILE[name]
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(CorruptModel, match=rf"tokenizer\.model.*{message}"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "tokenizer.model", class_name, {}))


OTHER: dict[str, tuple[str, bytes, str]] = {
    "unigram_in_llama": ("LlamaTokenizer", HEAD + UNIGRAM, "no byte-pair model .* 'PreTrainedTokenizerFast'"),
    "pairs_in_t5": ("T5Tokenizer", HEAD + BYTE_PAIRS, "only unigram models"),
    "words": ("", HEAD + WORDS, "only unigram and byte-pair models"),
    "ranks_in_gemma": ("GemmaTokenizer", RANKS, "class 'GemmaTokenizer' can be built.*save_pretrained"),
    "class_in_python": (
        "PLBartTokenizer",
        HEAD,
        "class is PLBartTokenizer, which transformers runs in Python",
    ),
    "unknown_class": ("CodeLlamaTokenizer", HEAD, "class 'CodeLlamaTokenizer' can be built.*save_pretrained"),
}


@pytest.mark.parametrize("name", OTHER)
def test_vocabularies_of_another_kind_are_refused(name: str, tmp_path: Path) -> None:
    class_name, content, message = OTHER[name]
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(UnsupportedModel, match=message):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "tokenizer.model", class_name, {}))


def test_a_vocabulary_with_too_many_merges_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merges, "_MOST_MERGES", 100)
    pieces = (piece(format(number, f"0{length}b")) for length in range(1, 6) for number in range(2**length))
    (tmp_path / "tokenizer.model").write_bytes(HEAD + b"".join(pieces) + BYTE_PAIRS)
    with pytest.raises(CorruptModel, match="more than 100 merges"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "tokenizer.model", "LlamaTokenizer", {}))


def test_an_added_token_far_from_the_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(RANKS)
    settings = {"added_tokens_decoder": {"999999999": {"content": "<far>"}}}
    with pytest.raises(
        CorruptModel, match=r"256 tokens, but the id of '<far>', an added token, is 999999999"
    ):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "tokenizer.model", "", settings))


@pytest.mark.parametrize("name", ["own.tiktoken", "tekken.json", "own.model"])
def test_other_vocabulary_files_are_named(name: str, tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    (directory / "tokenizer.json").rename(directory / name)
    with pytest.raises(
        UnsupportedModel, match=rf"{name} is a vocabulary that vecmill does not read.*save_pre"
    ):
        describe_model(locate_model(directory))


def described(folder: Path, class_name: str, **settings: Any) -> ModelDescription:
    """A model whose tokenizer is of the class."""
    description = describe_model(locate_model(save_tiny_bert(folder / "bert")))
    make_tokenizer(class_name).save_pretrained(folder)
    return replace(
        description,
        tokenizer_file=folder / "tokenizer.json",
        tokenizer_config={"tokenizer_class": class_name, **settings},
    )


@pytest.mark.parametrize("class_name", ["MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer"])
def test_a_language_that_the_vocabulary_lacks_is_named(class_name: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match="src_lang is 'xx_XX', which the vocabulary lacks"):
        read_tokenizer(described(tmp_path, class_name, src_lang="xx_XX"))


@pytest.mark.promise("malformed-input")
def test_a_long_token_in_a_tokenizer_file_is_refused_before_it_overflows_the_stack(tmp_path: Path) -> None:
    description = described(tmp_path, "XLMRobertaTokenizer")
    document = json.loads(description.tokenizer_file.read_text())
    document["model"]["vocab"].append(["a" * 1_000_000, -1.0])
    description.tokenizer_file.write_text(json.dumps(document))
    with pytest.raises(CorruptModel, match=r"tokenizer\.json has a string of more than 8192 bytes"):
        read_tokenizer(description)


STRINGS: dict[str, tuple[Any, bool]] = {
    "short": (["a" * LONGEST_PIECE] * 3, True),
    "long": (["a" * (LONGEST_PIECE + 1)], False),
    "table": ({"precompiled_charsmap": "a" * 100_000, "b": "c"}, True),
    "like_a_table": (["precompiled_charsmap", "a" * 100_000], False),
    "named_like_a_table": ({"a precompiled_charsmap": "a" * 100_000}, False),
    "after_a_table": ({"precompiled_charsmap": "a" * 100_000, "b": "a" * 100_000}, False),
    "escaped_marks": (['a"' * LONGEST_PIECE], False),
    "escaped_backslashes": (["\\" * LONGEST_PIECE], False),
    "ends_in_a_backslash": (["a\\", "b\\"] * 100, True),
}


@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize("indent", [None, 2])
def test_long_strings_are_found(name: str, indent: int | None) -> None:
    document, is_accepted = STRINGS[name]
    content = json.dumps(document, indent=indent).encode()
    if is_accepted:
        check_strings(Path("tokenizer.json"), content)
        return
    with pytest.raises(CorruptModel, match="has a string of more than"):
        check_strings(Path("tokenizer.json"), content)


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("indent", [None, 1])
def test_a_unigram_vocabulary_with_too_many_bytes_is_refused(indent: int | None) -> None:
    def write(count: int) -> bytes:
        return json.dumps([[f"{number:08000}", -1.5] for number in range(count)], indent=indent).encode()

    check_strings(Path("tokenizer.json"), write(2_000))
    check_strings(Path("tokenizer.json"), write(2_200).replace(b"-1.5", b'"b"'))  # merges of byte pairs
    with pytest.raises(CorruptModel, match="more than 16 MiB of pieces"):
        check_strings(Path("tokenizer.json"), write(2_200))


def damaged_tables(dice: random.Random, count: int) -> Iterator[bytes]:
    """Normalisation tables with a few other bytes, which the library accepts."""
    for _ in range(count):
        table = bytearray(CHARSMAP)
        for _ in range(dice.randint(1, 4)):
            table[dice.randrange(len(table))] = dice.randrange(256)
        yield bytes(table)


@pytest.mark.promise("malformed-input")
def test_no_accepted_normalisation_table_makes_the_library_panic() -> None:
    from tokenizers import normalizers

    check_charsmaps(normalizers.Precompiled(CHARSMAP), Path("tokenizer.json"))
    refused, text = 0, " ".join(SCRAPS)
    for table in damaged_tables(random.Random(7), 1_000):
        try:
            normalizer = normalizers.Precompiled(table)
        except Exception:
            continue  # refused by the library
        try:
            check_charsmaps(normalizers.Sequence([normalizers.NFC(), normalizer]), Path("tokenizer.json"))
        except VecmillError:
            refused += 1
            continue
        normalizer.normalize_str(text)
    assert refused > 10


def test_a_damaged_normalisation_table_is_named(tmp_path: Path) -> None:
    table = bytearray(CHARSMAP)
    table[4:8] = b"\xff\xff\xff\x7f"  # the first unit
    description = described(tmp_path, "XLMRobertaTokenizer")
    encoded = base64.b64encode(table).decode()
    edit_json(description.tokenizer_file, normalizer={"type": "Precompiled", "precompiled_charsmap": encoded})
    with pytest.raises(CorruptModel, match=r"tokenizer\.json: the normalisation table .* is damaged"):
        read_tokenizer(description)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("value", ["1", "true", "1e400", '"x"'])
def test_a_value_in_place_of_a_list_of_tokens_is_refused(
    file: str, key: str, value: str, tmp_path: Path
) -> None:
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    (folder / file).write_text(f'{{"{key}": {value}}}')
    with pytest.raises(CorruptModel, match=rf"{file}: {key} must be a list or an object"):
        read_tokenizer(describe_model(locate_model(folder)))


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
def test_what_is_no_token_in_a_list_of_tokens_is_named(file: str, key: str, tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    for value in ("[1000000000000, -1]", "[[[null]]]", '["x", {}]'):
        (folder / file).write_text(f'{{"{key}": {value}}}')
        with pytest.raises(CorruptModel, match=f"{file}: {key}"):
            read_tokenizer(describe_model(locate_model(folder)))
