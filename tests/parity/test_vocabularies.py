"""Without a tokenizer.json, tokens are those that transformers makes of the vocabulary files."""

import base64
import json
import os
import random
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

from parity.test_tokenizers import TEXTS, describe, digest_of, is_long
from support.published import Published, edit_json, pooling, save_published
from support.reference import load_library_model
from support.references import answer, digest_directory
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizers_of_class import (
    BERT,
    GEMMA,
    ROBERTA,
    train_bytes,
    train_fallback,
    train_pieces,
    train_words,
    word_pieces,
)
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.building.assembly import build_tokenizer, read_tokenizer
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False}
PADDING = {"700": {"content": "<pad>", "special": True, "normalized": False, "lstrip": True}}
ENDS = {
    "599": {"content": "<|begin_of_text|>", "special": True, "normalized": False},
    "602": {"content": "<|end_of_text|>", "special": False, "normalized": True, "rstrip": True},
}
IM_END = {"600": {"content": "<|im_end|>", "special": True, "normalized": False}}

# Family, class, vocabulary, what the settings say.
CASES: dict[str, tuple[str, str | None, str, dict[str, Any]]] = {
    "roberta": ("roberta", "RobertaTokenizer", "vocab.json", {}),
    "roberta_unnamed": ("roberta", None, "vocab.json", {}),
    "roberta_spaced": ("roberta", "RobertaTokenizerFast", "vocab.json", {"add_prefix_space": True}),
    "roberta_mask": ("roberta", "RobertaTokenizer", "vocab.json", {"mask_token": MASK}),
    "qwen": (
        "qwen3",
        "Qwen2Tokenizer",
        "vocab.json",
        {"added_tokens_decoder": IM_END, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    ),
    "xlm_roberta": ("xlm-roberta", "XLMRobertaTokenizer", "sentencepiece.bpe.model", {}),
    "xlm_roberta_mask": ("xlm-roberta", None, "sentencepiece.bpe.model", {"mask_token": MASK}),
    "xlm_roberta_in_bert": ("bert", "XLMRobertaTokenizer", "sentencepiece.bpe.model", {}),
    "camembert": ("camembert", "CamembertTokenizer", "sentencepiece.bpe.model", {}),
    "albert": ("albert", "AlbertTokenizer", "spiece.model", {}),
    "albert_cased": ("albert", None, "spiece.model", {"do_lower_case": False, "keep_accents": True}),
    "deberta": ("deberta-v2", "DebertaV2Tokenizer", "spm.model", {}),
    "deberta_words": ("deberta-v2", None, "spm.model", {"split_by_punct": True, "do_lower_case": True}),
    "rembert": ("rembert", "RemBertTokenizer", "sentencepiece.model", {}),
    "rembert_lower": (
        "rembert",
        None,
        "sentencepiece.model",
        {"do_lower_case": True, "keep_accents": False, "add_bos_token": True, "add_eos_token": True},
    ),
    "t5": ("t5", "T5Tokenizer", "spiece.model", {}),
    "t5_few": ("t5", None, "spiece.model", {"extra_ids": 10}),
    "bert": ("bert", "BertTokenizer", "vocab.txt", {}),
    "gpt2": ("gpt2", "GPT2Tokenizer", "vocab.json", {}),
    "gpt2_ends": ("gpt_neo", None, "vocab.json", {"add_bos_token": True, "add_eos_token": True}),
    "qwen_ends": ("qwen3", None, "vocab.json", {"add_eos_token": True}),
    "gpt_neox": ("gpt_neox", "GPTNeoXTokenizerFast", "vocab.json", {"add_bos_token": True}),
    "deberta_1": ("deberta", None, "vocab.json", {}),
    "herbert": ("bert", "HerbertTokenizerFast", "vocab.json", {}),
    "llama": ("llama", "LlamaTokenizer", "tokenizer.model", {}),
    "llama_ends": (
        "llama",
        "LlamaTokenizerFast",
        "tokenizer.model",
        {"add_bos_token": True, "add_eos_token": True, "pad_token": "</s>", "legacy": None},
    ),
    "llama_legacy": ("llama", "LlamaTokenizer", "tokenizer.model", {"legacy": True, "add_bos_token": True}),
    "llama_bare": ("llama", "LlamaTokenizer", "tokenizer.model", {"add_prefix_space": False}),
    "llama_padded": (
        "qwen3",
        "LlamaTokenizer",
        "tokenizer.model",
        {"added_tokens_decoder": PADDING, "pad_token": "<pad>", "add_eos_token": True},
    ),
    "llama_unnamed": ("llama", None, "tokenizer.model", {"add_bos_token": True}),
    "mistral": ("mistral", "LlamaTokenizer", "tokenizer.model", {"add_bos_token": True, "legacy": True}),
    "mistral_no_start": ("mistral", None, "tokenizer.model", {"add_bos_token": True, "bos_token": None}),
    "gemma": ("gemma2", "GemmaTokenizer", "tokenizer.model", {"add_bos_token": True}),
    "gemma_unnamed": ("gemma3_text", None, "tokenizer.model", {"additional_special_tokens": ["the"]}),
    "unigram_unnamed": ("llama", "PreTrainedTokenizerFast", "unigram", {"add_eos_token": True}),
    "llama3": ("llama", "PreTrainedTokenizerFast", "tiktoken", {"added_tokens_decoder": ENDS}),
    "llama3_ends": (
        "llama",
        "PreTrainedTokenizerFast",
        "tiktoken",
        {
            "added_tokens_decoder": ENDS,
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|end_of_text|>",
            "add_bos_token": True,
        },
    ),
    "llama3_of_its_class": ("llama", "LlamaTokenizer", "tiktoken", {"add_eos_token": True}),
    "llama3_more": ("llama", None, "tiktoken.model", {"extra_special_tokens": ["<|im_end|>", "<s>"]}),
    "llama3_old": ("llama", None, "tiktoken added", {"eos_token": "<|im_end|>"}),
    "mbart": ("bert", "MBartTokenizer", "sentencepiece.bpe.model", {}),
    "mbart_language": ("mbart", None, "sentencepiece.bpe.model", {"src_lang": "de_DE"}),
    "mbart50": ("bert", "MBart50TokenizerFast", "sentencepiece.bpe.model", {}),
    "mbart50_language": ("mbart", "MBart50Tokenizer", "sentencepiece.bpe.model", {"src_lang": "gl_ES"}),
    "xlnet": ("xlnet", "XLNetTokenizer", "spiece.model", {}),
    "t5_listed": ("t5", None, "spiece.model", {"additional_special_tokens": ["<extra_id_0>", "the"]}),
    "albert_listed": ("albert", None, "spiece.model", {"additional_special_tokens": []}),
    "mbart_listed": ("mbart", None, "sentencepiece.bpe.model", {"additional_special_tokens": ["the"]}),
    "xlnet_listed": ("xlnet", None, "spiece.model", {"extra_special_tokens": ["the"]}),
    "llama_named": (
        "llama",
        "LlamaTokenizer",
        "tokenizer.model",
        {"extra_special_tokens": {"own_token": "the"}},
    ),
    "mistral_listed": ("mistral", None, "tokenizer.model", {"additional_special_tokens": None}),
    "xlnet_lower": ("bert", "XLNetTokenizer", "spiece.model", {"do_lower_case": True, "keep_accents": True}),
}

SHORT = ("a model reads words", "漢 🦊 x", "the " * 20, " two  spaces")

# Vocabularies of several kinds have files of one name.
FILES = dict.fromkeys(("unigram", "tiktoken", "tiktoken added"), "tokenizer.model")

MORE = (
    "<s>one<s> two <pad>three\n\nfour\u2581\u2581five  six<0x41> de_DE <eop><cls> the\u00a0end </w> "
    "<|begin_of_text|><|end_of_text|>  <|reserved_token_600|>"
)

# A table of characters as sentencepiece compiles it, zipped: "\ufb01" becomes "fi", and "\uff46" "f".
CHARSMAP = zlib.decompress(
    base64.b64decode(
        "eNod0mWQlwUQB+B3DoYB6UG6Q+kQkI4jlZSWRhEODuluji5JUVK6BZSuAxWVBglB6e44uuv5szPP7of9sB/2F8QOgmBTrCAm"
        "OixYEYQFg9MHehA1ImEQqqg4WjziEp8PCK0SkJhEJCUJydgWHhYkNz8kJSlITSrSkgYngnRkJAOZyURWsvAR2cjOx+QkB7nJ"
        "RV7ykJ98fEIBClGQTylMUYpQnGKUpASlKUVZylCOcCpQnkpU5DMqU4XPqUZValCdL6hJbWpRlzrUpx5f0oBGNKQJjWlGU1rQ"
        "nK/5im9oSWta0YYIImnLt7SjA+3pREe60JludKUH3elFT/rQm370ZQD9GcRABocezVCGMJxhjGQEoxnFWMYwju+YwHgmMZHv"
        "mcwPTGEqPzKdacxkBj8xiznMZh5zWcB8FrGQJSxmGUv5meWsZAW/sIrV/Mpa1rCedWxkA5tDEWcrW0IZJZrf2M4f/M6f7OBv"
        "/mIXO9nDbvaxlwPs5x8OcphDHOUIx/iX/zjOCf7nFCc5w2nOcZYLnOcSF7nCZa5xlRtc5xY3ucNtYrjLfe7xkAc85hFPecJz"
        "nvGSF7zmFW958z5jEZHBO27ahto="
    )
)

# What such a model file begins with, and what kind of piece each is.
LEADING = {
    "sentencepiece.bpe.model": [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)],
    "sentencepiece.model": [
        ("<pad>", CONTROL),
        ("</s>", CONTROL),
        ("<unk>", UNKNOWN),
        ("<s>", CONTROL),
        ("[CLS]", USER_DEFINED),
        ("[SEP]", USER_DEFINED),
        ("[MASK]", USER_DEFINED),
    ],
    "spm.model": [("[PAD]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL), ("[UNK]", UNKNOWN)],
}
LEADING_OF_SPIECE = {
    "albert": [
        ("<pad>", CONTROL),
        ("<unk>", UNKNOWN),
        ("[CLS]", CONTROL),
        ("[SEP]", CONTROL),
        ("[MASK]", CONTROL),
        ("(", USER_DEFINED),
    ],
    "t5": [("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN)],
    "xlnet": [
        ("<unk>", UNKNOWN),
        ("<s>", CONTROL),
        ("</s>", CONTROL),
        ("<cls>", CONTROL),
        ("<sep>", CONTROL),
        ("<pad>", CONTROL),
        ("<mask>", CONTROL),
        ("<eod>", USER_DEFINED),
        ("<eop>", USER_DEFINED),
    ],
}
LEADING_OF_PAIRS = {
    "llama": [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)],
    "gemma": [
        ("<pad>", CONTROL),
        ("<eos>", CONTROL),
        ("<bos>", CONTROL),
        ("<unk>", UNKNOWN),
        ("<mask>", USER_DEFINED),
        ("\n\n", USER_DEFINED),
        ("\u2581\u2581", USER_DEFINED),
    ],
}


def save_pieces(path: Path, leading: list[tuple[str, int]], *, cased: bool, model_type: int = 1) -> None:
    """A model file of sentencepiece, with a table of characters that real ones have."""
    question = ["pieces", leading, cased, model_type, CHARSMAP]
    pieces = answer(question, lambda: make_pieces(leading, cased, model_type), repeatable=False)
    path.write_bytes(pieces.tobytes())


def make_pieces(leading: list[tuple[str, int]], cased: bool, model_type: int) -> npt.NDArray[np.uint8]:
    from transformers.convert_slow_tokenizer import import_protobuf

    model = import_protobuf().ModelProto()
    seen = {piece for piece, _ in leading}
    trained = [(piece, score) for piece, score in train_pieces((), cased=cased) if piece not in seen]
    for piece, kind in leading:
        model.pieces.add(piece=piece, score=0.0, type=kind)
    for piece, score in trained[1:]:  # the first is the trainer's own unknown token
        model.pieces.add(piece=piece, score=score, type=NORMAL)
    model.trainer_spec.model_type = model_type
    model.trainer_spec.unk_id = [kind for _, kind in leading].index(UNKNOWN)
    model.normalizer_spec.precompiled_charsmap = CHARSMAP
    return np.frombuffer(model.SerializeToString(), np.uint8)


def save_piece_pairs(path: Path, leading: list[tuple[str, int]], *, byte_fallback: bool = True) -> None:
    """A model file of sentencepiece with byte pairs, whose scores are their ranks, as the trainer's."""
    question = ["pairs of pieces", leading, byte_fallback]
    path.write_bytes(answer(question, lambda: make_piece_pairs(leading, byte_fallback)).tobytes())


def make_piece_pairs(leading: list[tuple[str, int]], byte_fallback: bool) -> npt.NDArray[np.uint8]:
    from transformers.convert_slow_tokenizer import import_protobuf

    model = import_protobuf().ModelProto()
    for piece, kind in leading:
        model.pieces.add(piece=piece, score=0.0, type=kind)
    if byte_fallback:
        for byte in range(256):
            model.pieces.add(piece=f"<0x{byte:02X}>", score=0.0, type=BYTE)
    names = [piece for piece, _ in leading]
    for rank, piece in enumerate(train_fallback()["vocab"]):
        if piece not in names and piece not in GEMMA and not piece.startswith("<0x"):
            model.pieces.add(piece=piece, score=-rank, type=NORMAL)
    model.trainer_spec.model_type = 2
    model.trainer_spec.byte_fallback = byte_fallback
    model.trainer_spec.unk_id = names.index("<unk>")
    return np.frombuffer(model.SerializeToString(), np.uint8)


def save_ranks(path: Path) -> None:
    """A tiktoken file with the ranks of a trained byte-level vocabulary, of 599 tokens."""
    path.write_text(answer("ranks", make_ranks))


def make_ranks() -> str:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary, _ = train_bytes(("<|endoftext|>",))
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokens = sorted(set(vocabulary) - {"<|endoftext|>"}, key=vocabulary.__getitem__)
    spelt = (bytes(letters[letter] for letter in token) for token in tokens)
    lines = (f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(spelt))
    return "\n".join(lines) + "\n"


def save_vocabulary(folder: Path, family: str, name: str, settings: dict[str, Any]) -> None:
    if name == "vocab.json":
        special = {"roberta": ROBERTA, "deberta": BERT}.get(family, ("<|endoftext|>",))
        vocabulary, merges = train_words() if family == "bert" else train_bytes(special)
        (folder / name).write_text(json.dumps(vocabulary))
        lines = ["#version: 0.2", *(f"{one} {other}" for one, other in merges)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif name == "vocab.txt":
        (folder / name).write_text("".join(f"{piece}\n" for piece in word_pieces(BERT)), encoding="utf-8")
    elif name == "tokenizer.model":
        save_piece_pairs(folder / name, LEADING_OF_PAIRS["gemma" if "gemma" in family else "llama"])
    elif name.startswith("tiktoken"):
        save_ranks(folder / FILES.get(name, name))
        if name.endswith("added"):
            (folder / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 600}))
    elif name == "unigram":
        save_pieces(folder / "tokenizer.model", LEADING["sentencepiece.bpe.model"], cased=True)
    else:
        leading = LEADING.get(name) or LEADING_OF_SPIECE["xlnet" if family == "bert" else family]
        save_pieces(folder / name, leading, cased=family != "albert" or "keep_accents" in settings)
    if name == "spm.model":
        (folder / "added_tokens.json").write_text(json.dumps({"[MASK]": 600}))


def load_reference(folder: Path) -> Any:
    """transformers asks for the sentencepiece package, of which it then uses nothing here.

    tiktoken would keep copies of the files it reads.
    """
    with (
        warnings.catch_warnings(),
        mock.patch("transformers.convert_slow_tokenizer.requires_backends"),
        mock.patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": ""}),
    ):
        warnings.simplefilter("ignore")  # theirs to heed
        import transformers

        return transformers.AutoTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("base") / "model", TinyBert())))


def read_ids(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Digests of the vocabulary and of the ids of texts, and the ids of a pair."""
    reference = load_reference(folder)
    return {
        "vocabulary": digest_of(reference.get_vocab()),
        "texts": [digest_of(reference(text)["input_ids"]) for text in texts],
        "pair": reference(TEXTS[0], TEXTS[1])["input_ids"],
    }


# One of each kind of vocabulary reads long texts.
KINDS = ("roberta", "xlm_roberta", "bert", "gemma", "llama3")
PARAMS = [
    *((name, False) for name in CASES),
    *(pytest.param(name, True, marks=() if name in KINDS else pytest.mark.full) for name in CASES),
]


@pytest.mark.parametrize(("name", "reads_long"), PARAMS)
def test_tokens_are_those_of_the_class(
    base: ModelDescription, tmp_path: Path, name: str, reads_long: bool
) -> None:
    family, class_name, file, settings = CASES[name]
    save_vocabulary(tmp_path, family, file, settings)
    file = FILES.get(file, file)
    config = {"model_type": family}
    (tmp_path / "config.json").write_text(json.dumps(config))
    named = {} if class_name is None else {"tokenizer_class": class_name}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**named, **settings}))
    texts = [*TEXTS, "<extra_id_3> (a) [UNK] <|im_end|> x", MORE]
    expected = answer(["ids", digest_directory(tmp_path), texts], lambda: read_ids(tmp_path, texts))
    described = describe(base, tmp_path, config)
    ours = read_tokenizer(replace(described, tokenizer_file=tmp_path / file))
    assert digest_of(ours.get_vocab()) == expected["vocabulary"]
    digests = {
        text: digest
        for text, digest in zip(texts, expected["texts"], strict=True)
        if is_long(text) == reads_long
    }
    for text, digest in digests.items():
        assert digest_of(ours.encode(text).ids) == digest, text
    assert ours.encode(TEXTS[0], TEXTS[1]).ids == expected["pair"]
    assert len({*digests.values()}) > len(digests) / 2


def test_a_class_that_is_not_known_is_refused(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, "roberta", "vocab.json", {})
    with pytest.raises(UnsupportedModel, match=r"no tokenizer of the class 'BartTokenizer' can be built"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "vocab.json", "BartTokenizer", {}))
    with pytest.raises(UnsupportedModel, match=r"has vocab\.json and no tokenizer\.json"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "vocab.json", "BertTokenizer", {}))


def test_byte_pairs_in_a_model_file_are_refused(tmp_path: Path) -> None:
    save_pieces(tmp_path / "spiece.model", LEADING_OF_SPIECE["t5"], cased=True, model_type=2)
    with pytest.raises(UnsupportedModel, match="only unigram models of sentencepiece"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "spiece.model", "T5Tokenizer", {}))


BROKEN: dict[str, tuple[str, str, bytes, str]] = {
    "no_protobuf": (
        "T5Tokenizer",
        "spiece.model",
        b"\xff\xff\xff",
        "cannot be read as a sentencepiece model",
    ),
    "empty": ("T5Tokenizer", "spiece.model", b"", "it has no pieces"),
    "no_numbers": ("RobertaTokenizer", "vocab.json", b'{"a": "b"}', "must number the tokens"),
    "no_merges": ("RobertaTokenizer", "vocab.json", b'{"a": 0}', r"merges\.txt is missing"),
    "no_words": (
        "BertTokenizer",
        "vocab.txt",
        b"[PAD]\n",
        r"unk_token is '\[UNK\]', which the vocabulary lacks",
    ),
    "no_text": ("BertTokenizer", "vocab.txt", b"\xff", "cannot be read as a vocabulary"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(tmp_path: Path, name: str) -> None:
    class_name, file, content, message = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CorruptModel, match=message):
        convert_vocabulary(TokenizerFiles.read(tmp_path / file, class_name, {}))


def test_merges_that_do_not_fit_are_named(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, "roberta", "vocab.json", {})
    (tmp_path / "merges.txt").write_text("#version: 0.2\nno pair\n")
    with pytest.raises(CorruptModel, match=r"merges\.txt does not fit vocab\.json"):
        convert_vocabulary(TokenizerFiles.read(tmp_path / "vocab.json", "RobertaTokenizer", {}))


# Ends of lines, and what other tools leave at them; the library strips more than Python's `splitlines` cuts.
ENDS_OF_LINES = (
    "\n",
    "\r\n",
    " \n",
    "  \r\n",
    "\t\n",
    "\u00a0\n",
    "\x85\n",
    "\u3000\n",
    "\x1c\n",
    "\u200b\n",
    "\r\r\n",
)
INSERTED = ("", " ", "\ufeff", "the", "the ", " the", "a\rb", "the\x0bmodel", "\u2028", "##s ")


def respell_lines(dice: random.Random, lines: list[str], *, rate: float) -> str:
    """The lines of a file as another tool may have written it."""
    written = ""
    for line in lines:
        if dice.random() < rate:
            written += dice.choice(INSERTED) + dice.choice(ENDS_OF_LINES)
        written += line + (dice.choice(ENDS_OF_LINES) if dice.random() < rate else "\n")
    return written.rstrip("\n") if dice.random() < 0.5 else written


def tokens_or_refusal(read: Callable[[], Any]) -> Any:
    """Digests of the vocabulary and of the tokens of texts, or `None` if there is no tokenizer."""
    try:
        tokenizer = read()
        ids = [tokenizer.encode(text).ids for text in SPLIT_TEXTS]
        return [digest_of(tokenizer.get_vocab()), *map(digest_of, ids)]
    except BaseException as error:  # the library panics for some files
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None


SPLIT_TEXTS = [text for text in TEXTS if len(text) < 500]


@pytest.mark.parametrize("seed", range(12))
def test_lines_of_word_pieces_are_those_of_transformers(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    lines = respell_lines(dice, list(word_pieces(BERT)), rate=0.02 if seed % 2 else 0.3)
    (tmp_path / "vocab.txt").write_bytes(("\ufeff" * (seed == 1) + lines).encode())
    compare_vocabulary(tmp_path, "bert", "BertTokenizer", "vocab.txt")


@pytest.mark.parametrize("seed", range(24))
def test_lines_of_merges_are_those_of_transformers(seed: int, tmp_path: Path) -> None:
    """Most other white space than a CR at the end of a line is refused by both."""
    dice = random.Random(seed)
    save_vocabulary(tmp_path, "roberta", "vocab.json", {})
    lines = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
    if seed % 3 == 0:
        written = respell_lines(dice, lines, rate=0.002)
    else:
        written = "".join(f"{line}{dice.choice(ENDS_OF_LINES[:2])}" for line in lines)
    if seed % 3 == 1:  # merges may be anywhere, and twice
        written += "".join(f"{line}\n" for line in dice.sample(lines, 20))
    (tmp_path / "merges.txt").write_bytes(written.encode())
    is_read = compare_vocabulary(tmp_path, "roberta", "RobertaTokenizer", "vocab.json")
    assert is_read or seed % 3 == 0


def compare_vocabulary(folder: Path, family: str, class_name: str, file: str) -> bool:
    """Compare with transformers, and return whether the vocabulary is read at all."""
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": class_name}))
    expected = answer(
        ["vocabulary", digest_directory(folder), SPLIT_TEXTS],
        lambda: tokens_or_refusal(lambda: load_reference(folder).backend_tokenizer),
    )
    files = TokenizerFiles.read(folder / file, class_name, {})
    assert tokens_or_refusal(lambda: build_tokenizer(files)) == expected
    return expected is not None


def embed_with_library(folder: Path) -> Any:
    with mock.patch("transformers.convert_slow_tokenizer.requires_backends"):
        return load_library_model(folder, "SentenceTransformer", {}).encode(list(SHORT))


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize(
    ("weights", "class_name"), [("LlamaModel", "LlamaTokenizer"), ("MistralModel", "LlamaTokenizer")]
)
def test_embeddings_of_a_directory_with_tokenizer_model_are_those_of_the_reference(
    weights: str, class_name: str, tmp_path: Path
) -> None:
    sizes = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = Published(weights, class_name, (pooling("mean"),), sizes)
    folder = save_published(tmp_path / "model", model)
    (folder / "tokenizer.json").unlink()
    save_piece_pairs(folder / "tokenizer.model", LEADING_OF_PAIRS["llama"])
    edit_json(folder / "tokenizer_config.json", pad_token="</s>", add_bos_token=True)
    expected = answer(["embeddings", digest_directory(folder), SHORT], lambda: embed_with_library(folder))
    with SyncMill(folder, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        found = mill.embed(SHORT)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.ptp(expected, axis=0).max() > 0.01
