"""Tokens are those of transformers' own class for a model, whatever its tokenizer.json says in passing."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.texts import hard_texts, mixed_texts, prose_words
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.models import ModelDescription, describe_model, locate_model
from vecmill.models.tokenizer import read_tokenizer

TEXTS = [
    *mixed_texts(2, 12),
    *hard_texts(),
    "  two  spaces\tand a tab\n",
    "ﬁne ｆｕｌｌ ``quoted'' café CAFÉ",
    "a<mask>b [MASK] </s>",
]

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def train_pieces(special: tuple[str, ...], *, cased: bool = True) -> list[tuple[str, float]]:
    """A sentencepiece vocabulary with scores, beginning with `special`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = prose_words()[:3_000]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=500, show_progress=False)
    tokenizer.train_from_iterator([" ".join(words if cased else map(str.lower, words))], trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return [*((token, 0.0) for token in special), *(tuple(piece) for piece in pieces)]


def train_bytes(special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [" ".join(prose_words()[:3_000])], vocab_size=600, special_tokens=list(special), show_progress=False
    )
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def word_pieces(special: tuple[str, ...]) -> dict[str, int]:
    words = dict.fromkeys(word.lower() for word in prose_words()[:400])
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    return {piece: number for number, piece in enumerate(pieces)}


def make(class_name: str) -> Any:
    """A tokenizer of a transformers class with a vocabulary of its kind."""
    import transformers

    tokenizer_class = getattr(transformers, class_name)
    if class_name == "RobertaTokenizer":
        vocabulary, merges = train_bytes(ROBERTA)
        return tokenizer_class(vocab=vocabulary, merges=merges)
    if class_name in ("BertTokenizer", "DistilBertTokenizer"):
        return tokenizer_class(vocab=word_pieces(BERT))
    if class_name == "MPNetTokenizer":
        return tokenizer_class(vocab=word_pieces((*ROBERTA, "[UNK]")))
    special = {
        "AlbertTokenizer": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        "DebertaV2Tokenizer": ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
        "T5Tokenizer": ("<pad>", "</s>", "<unk>"),
        "CamembertTokenizer": ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<s>", "</s>", "<mask>"),
    }.get(class_name, ROBERTA)
    return tokenizer_class(vocab=train_pieces(special, cased=class_name != "AlbertTokenizer"))


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("bert", "BertTokenizer", {}),
    "bert_cased": ("bert", "BertTokenizer", {"do_lower_case": False}),
    "distilbert": ("distilbert", "DistilBertTokenizer", {"strip_accents": False}),
    "mpnet": ("mpnet", "MPNetTokenizer", {}),
    "mpnet_cased": ("mpnet", "MPNetTokenizer", {"do_lower_case": False}),
    "roberta": ("roberta", "RobertaTokenizer", {}),
    "roberta_spaced": ("roberta", "RobertaTokenizer", {"add_prefix_space": True}),
    "xlm_roberta": ("xlm-roberta", "XLMRobertaTokenizer", {}),
    "camembert": ("camembert", "CamembertTokenizer", {}),
    "albert": ("albert", "AlbertTokenizer", {}),
    "albert_accents": ("albert", "AlbertTokenizer", {"keep_accents": True, "do_lower_case": False}),
    "deberta": ("deberta-v2", "DebertaV2Tokenizer", {}),
    "deberta_punctuation": ("deberta-v2", "DebertaV2Tokenizer", {"split_by_punct": True}),
    "deberta_lower": ("deberta-v2", "DebertaV2Tokenizer", {"do_lower_case": True}),
    "t5": ("t5", "T5Tokenizer", {}),
    "split_special_tokens": ("bert", "BertTokenizer", {"split_special_tokens": True}),
    "more_special_tokens": ("bert", "BertTokenizer", {"extra_special_tokens": ["the", "and"]}),
}

# What an older release might have written into tokenizer.json.
NORMALIZERS: dict[str, Any] = {
    "as_saved": "as saved",
    "none": None,
    "another": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("base") / "model", TinyBert())))


def describe(base: ModelDescription, folder: Path, config: Mapping[str, Any]) -> ModelDescription:
    written = json.loads((folder / "tokenizer_config.json").read_text())
    return replace(
        base,
        architecture=config["model_type"],
        config=config,
        tokenizer_config=written,
        tokenizer_file=folder / "tokenizer.json",
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("is_named", [True, False])
def test_tokens_are_those_of_the_class(
    base: ModelDescription, tmp_path: Path, name: str, normalizer: str, is_named: bool
) -> None:
    family, class_name, settings = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import transformers

        make(class_name).save_pretrained(tmp_path)
        config = {"model_type": family}
        (tmp_path / "config.json").write_text(json.dumps(config))
        written = json.loads((tmp_path / "tokenizer_config.json").read_text())
        written = {**written, **settings}
        if not is_named:
            del written["tokenizer_class"]
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(written))
        if normalizer != "as_saved":
            document = json.loads((tmp_path / "tokenizer.json").read_text())
            document["normalizer"] = NORMALIZERS[normalizer]
            (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        reference = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = read_tokenizer(describe(base, tmp_path, config))
    for text in TEXTS:
        assert ours.encode(text).ids == reference(text)["input_ids"], text
    pair = reference(TEXTS[0], TEXTS[1])["input_ids"]
    assert ours.encode(TEXTS[0], TEXTS[1]).ids == pair
