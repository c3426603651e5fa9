"""Without a tokenizer.json, tokens are those that transformers makes of the vocabulary files."""

import base64
import json
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from parity.test_tokenizers import TEXTS, describe
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizers_of_class import BERT, ROBERTA, train_bytes, train_pieces, word_pieces
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.classes import convert_vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False}
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
    "t5": ("t5", "T5Tokenizer", "spiece.model", {}),
    "t5_few": ("t5", None, "spiece.model", {"extra_ids": 10}),
    "bert": ("bert", "BertTokenizer", "vocab.txt", {}),
}

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
}


def save_pieces(path: Path, leading: list[tuple[str, int]], *, cased: bool, model_type: int = 1) -> None:
    """A model file of sentencepiece, with a table of characters that real ones have."""
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
    path.write_bytes(model.SerializeToString())


def save_vocabulary(folder: Path, family: str, name: str, settings: dict[str, Any]) -> None:
    if name == "vocab.json":
        vocabulary, merges = train_bytes(ROBERTA if family == "roberta" else ("<|endoftext|>",))
        (folder / name).write_text(json.dumps(vocabulary))
        lines = ["#version: 0.2", *(f"{one} {other}" for one, other in merges)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif name == "vocab.txt":
        (folder / name).write_text("".join(f"{piece}\n" for piece in word_pieces(BERT)), encoding="utf-8")
    else:
        leading = LEADING.get(name) or LEADING_OF_SPIECE[family]
        save_pieces(folder / name, leading, cased=family != "albert" or "keep_accents" in settings)
    if name == "spm.model":
        (folder / "added_tokens.json").write_text(json.dumps({"[MASK]": 600}))


def load_reference(folder: Path) -> Any:
    """transformers asks for the sentencepiece package, of which it then uses nothing here."""
    with warnings.catch_warnings(), mock.patch("transformers.convert_slow_tokenizer.requires_backends"):
        warnings.simplefilter("ignore")  # theirs to heed
        import transformers

        return transformers.AutoTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("base") / "model", TinyBert())))


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_the_class(base: ModelDescription, tmp_path: Path, name: str) -> None:
    family, class_name, file, settings = CASES[name]
    save_vocabulary(tmp_path, family, file, settings)
    config = {"model_type": family}
    (tmp_path / "config.json").write_text(json.dumps(config))
    named = {} if class_name is None else {"tokenizer_class": class_name}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**named, **settings}))
    reference = load_reference(tmp_path)
    described = describe(base, tmp_path, config)
    ours = read_tokenizer(replace(described, tokenizer_file=tmp_path / file))
    assert ours.get_vocab() == reference.get_vocab()
    for text in [*TEXTS, "<extra_id_3> (a) [UNK] <|im_end|> x"]:
        assert ours.encode(text).ids == reference(text)["input_ids"], text
    pair = reference(TEXTS[0], TEXTS[1])["input_ids"]
    assert ours.encode(TEXTS[0], TEXTS[1]).ids == pair
    assert len({*map(tuple, (ours.encode(text).ids for text in TEXTS))}) > len(TEXTS) / 2


def test_a_class_that_is_not_known_is_refused(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, "roberta", "vocab.json", {})
    with pytest.raises(UnsupportedModel, match=r"no tokenizer of the class 'BartTokenizer' can be built"):
        convert_vocabulary(tmp_path / "vocab.json", "BartTokenizer", {})
    with pytest.raises(UnsupportedModel, match=r"has vocab\.json and no tokenizer\.json"):
        convert_vocabulary(tmp_path / "vocab.json", "BertTokenizer", {})


def test_byte_pairs_in_a_model_file_are_refused(tmp_path: Path) -> None:
    save_pieces(tmp_path / "spiece.model", LEADING_OF_SPIECE["t5"], cased=True, model_type=2)
    with pytest.raises(UnsupportedModel, match="only unigram models of sentencepiece"):
        convert_vocabulary(tmp_path / "spiece.model", "T5Tokenizer", {})


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
    "no_words": ("BertTokenizer", "vocab.txt", b"[PAD]\n", r"lacks \[CLS\]"),
    "no_text": ("BertTokenizer", "vocab.txt", b"\xff", "cannot be read as a vocabulary"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(tmp_path: Path, name: str) -> None:
    class_name, file, content, message = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CorruptModel, match=message):
        convert_vocabulary(tmp_path / file, class_name, {})


def test_merges_that_do_not_fit_are_named(tmp_path: Path) -> None:
    save_vocabulary(tmp_path, "roberta", "vocab.json", {})
    (tmp_path / "merges.txt").write_text("#version: 0.2\nno pair\n")
    with pytest.raises(CorruptModel, match=r"merges\.txt does not fit vocab\.json"):
        convert_vocabulary(tmp_path / "vocab.json", "RobertaTokenizer", {})
