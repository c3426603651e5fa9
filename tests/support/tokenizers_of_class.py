"""Tokenizers of transformers' own classes, with small vocabularies of their kinds."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from support.references import answer, draw_weights, make_directory
from vecmill.values.sample_texts import prose_words

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
GEMMA = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
LIKE_BERT = tuple(
    f"{name}Tokenizer" for name in ("Bert", "ConvBert", "DistilBert", "MobileBert", "SqueezeBert")
)
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def train_pieces(special: tuple[str, ...], *, cased: bool = True) -> list[tuple[str, float]]:
    """A sentencepiece vocabulary with scores, beginning with `special`."""
    return [*((token, 0.0) for token in special), *_train_unigram(cased)]


@cache
def _train_unigram(cased: bool) -> tuple[tuple[str, float], ...]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = prose_words()[:3_000]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=500, show_progress=False)
    tokenizer.train_from_iterator([" ".join(words if cased else map(str.lower, words))], trainer)
    return tuple((piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"])


def train_bytes(special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level vocabulary that begins with `special`, and its merges."""
    model = _train_byte_pairs(special)
    return dict(model["vocab"]), [tuple(merge) for merge in model["merges"]]


@cache
def _train_byte_pairs(special: tuple[str, ...]) -> dict[str, Any]:
    return _read_trained(["bytes", special], lambda: _make_byte_pairs(special))


def _make_byte_pairs(special: tuple[str, ...]) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [" ".join(prose_words()[:3_000])], vocab_size=600, special_tokens=list(special), show_progress=False
    )
    return tokenizer


def _read_trained(question: object, train: Callable[[], Any]) -> dict[str, Any]:
    """The model of a trained tokenizer, which is recorded, as another training may order pairs otherwise."""
    model: dict[str, Any] = json.loads(
        answer(["trained", question], lambda: train().to_str(), repeatable=False)
    )["model"]
    return model


def train_fallback() -> dict[str, Any]:
    """Pairs that are merged, and bytes for what is unknown."""
    model = _train_byte_fallback()
    return {"vocab": dict(model["vocab"]), "merges": [tuple(merge) for merge in model["merges"]]}


@cache
def _train_byte_fallback() -> dict[str, Any]:
    return _read_trained("byte_fallback", _make_byte_fallback)


def _make_byte_fallback() -> Any:
    from tokenizers import Tokenizer, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    special = [*GEMMA, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([" ".join(prose_words()[:3_000])], trainer)
    return tokenizer


def train_words() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary of HerBERT's kind, whose pairs have a mark at the end of a word, and its merges."""
    model = _train_word_pairs()
    return dict(model["vocab"]), [tuple(merge) for merge in model["merges"]]


@cache
def _train_word_pairs() -> dict[str, Any]:
    return _read_trained("word_pairs", _make_word_pairs)


def _make_word_pairs() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words = prose_words()[:3_000]
    letters = sorted({letter for word in words for letter in word})
    # The trainer would number the letters at ends in any order, and by these numbers choose between pairs.
    first = [*ROBERTA, *letters, *(f"{letter}</w>" for letter in letters)]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=first, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(words)], trainer)
    return tokenizer


def _rename_special(model: dict[str, Any]) -> dict[str, Any]:
    """Replace Gemma's special tokens by those of Llama and NLLB."""
    names = dict(zip(GEMMA, ("<pad>", "</s>", "<s>", "<unk>", "<mask>"), strict=True))
    vocabulary = {names.get(piece, piece): number for piece, number in model["vocab"].items()}
    return {**model, "vocab": vocabulary}


def word_pieces(special: tuple[str, ...]) -> dict[str, int]:
    words = dict.fromkeys(word.lower() for word in prose_words()[:400])
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    return {piece: number for number, piece in enumerate(pieces)}


def save_tokenizer_of_class(folder: Path, class_name: str) -> Path:
    """Save a tokenizer of a transformers class, as `make_tokenizer` makes it."""
    return make_directory(
        folder,
        ["tokenizer of class", class_name],
        lambda folder: make_tokenizer(class_name).save_pretrained(folder),
        draw_weights(0, 0.0),
        repeatable=False,  # the scores of a trained unigram vocabulary differ each time
    )


def make_tokenizer(class_name: str) -> Any:
    """A tokenizer of a transformers class with a vocabulary of its kind."""
    import transformers

    tokenizer_class = getattr(transformers, class_name)
    if class_name in ("BartTokenizer", "GPT2Tokenizer", "RobertaTokenizer", "Qwen2Tokenizer"):
        is_roberta = class_name in ("BartTokenizer", "RobertaTokenizer")
        vocabulary, merges = train_bytes(ROBERTA if is_roberta else ("<|endoftext|>",))
        return tokenizer_class(vocab=vocabulary, merges=merges)
    if class_name in ("DebertaTokenizer", "GPTNeoXTokenizer"):
        neox = ("<|endoftext|>", "<|padding|>")
        vocabulary, merges = train_bytes(BERT if class_name == "DebertaTokenizer" else neox)
        return tokenizer_class(vocab=vocabulary, merges=merges)
    if class_name == "GemmaTokenizer":
        return tokenizer_class(**train_fallback())
    if class_name in ("LlamaTokenizer", "NllbTokenizer"):
        return tokenizer_class(**_rename_special(train_fallback()))
    if class_name == "HerbertTokenizer":
        vocabulary, merges = train_words()
        return tokenizer_class(vocab=vocabulary, merges=merges)
    if class_name.removesuffix("Tokenizer") in (
        "Bert",
        "ConvBert",
        "DistilBert",
        "MobileBert",
        "SqueezeBert",
    ):
        return tokenizer_class(vocab=word_pieces(BERT))
    if class_name == "MPNetTokenizer":
        return tokenizer_class(vocab=word_pieces((*ROBERTA, "[UNK]")))
    special = {
        "AlbertTokenizer": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        "DebertaV2Tokenizer": ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
        "XLNetTokenizer": ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
        "RemBertTokenizer": ("<pad>", "</s>", "<unk>", "<s>", "[CLS]", "[SEP]", "[MASK]"),
        "T5Tokenizer": ("<pad>", "</s>", "<unk>"),
        "CamembertTokenizer": ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<s>", "</s>", "<mask>"),
    }.get(class_name, ROBERTA)
    return tokenizer_class(vocab=train_pieces(special, cased=class_name != "AlbertTokenizer"))
