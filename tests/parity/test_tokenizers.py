"""Tokens are those of transformers' own class for a model, whatever its tokenizer.json says in passing."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizers_of_class import make_tokenizer
from vecmill.models import ModelDescription, describe_model, locate_model
from vecmill.models.tokenizer import read_tokenizer
from vecmill.pairs import PairTokenizer
from vecmill.tokens import Tokenizer

TEXTS = [
    *mixed_texts(2, 12),
    *hard_texts(),
    "  two  spaces\tand a tab\n",
    "ﬁne ｆｕｌｌ ``quoted'' café CAFÉ",
    "a<mask>b [MASK] </s>",
]

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
    "qwen2": ("qwen2", "Qwen2Tokenizer", {}),
    "qwen2_misnamed": ("qwen2", "Qwen2Tokenizer", {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "qwen3": ("qwen3", "Qwen2Tokenizer", {"add_bos_token": False, "add_eos_token": True}),
    "gemma": ("gemma3_text", "GemmaTokenizer", {}),
    "modernbert": ("modernbert", "RobertaTokenizer", {"add_prefix_space": True}),
    "mistral": ("mistral", "GemmaTokenizer", {"tokenizer_class": "LlamaTokenizer"}),
    "gte": ("gte", "XLMRobertaTokenizer", {}),
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

        make_tokenizer(class_name).save_pretrained(tmp_path)
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


@pytest.mark.parametrize(
    ("family", "class_name", "names"),
    [
        ("bert", "BertTokenizer", ["input_ids", "attention_mask"]),
        ("bert", "PreTrainedTokenizerFast", ["input_ids", "token_type_ids"]),
        ("bert", None, None),
        ("bert", "BertTokenizerFast", None),
        ("bert", "PreTrainedTokenizerFast", None),
        ("bert", "NoSuchTokenizer", None),
        ("roberta", None, None),
        ("roberta", "RobertaTokenizer", None),
        ("roberta", "BertTokenizer", None),
        ("electra", None, None),
        ("electra", "ElectraTokenizerFast", None),
        ("nomic_bert", None, None),
    ],
)
def test_token_types_of_pairs_are_those_of_transformers(
    family: str, class_name: str | None, names: list[str] | None, tmp_path: Path
) -> None:
    import transformers

    directory = save_tiny_bert(tmp_path / "model")  # whose tokenizer.json has types
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": class_name, "model_input_names": names}
    settings = {key: value for key, value in settings.items() if value is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    description = describe_model(locate_model(directory))
    config = {**description.config, "model_type": family}
    (directory / "config.json").write_text(json.dumps(config))
    theirs = transformers.AutoTokenizer.from_pretrained(directory)("a", "a").get("token_type_ids")
    changed = replace(description, config=config)
    (ours,) = PairTokenizer(Tokenizer.load(changed), changed).encode([("a", "a")])
    assert ours.token_type_ids.tolist() == (theirs or [0] * len(ours))
