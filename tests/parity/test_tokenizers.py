"""Tokens are those of transformers' own class for a model, whatever its tokenizer.json says in passing."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.families import quiet_library
from support.references import answer, digest_directory
from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizers_of_class import save_tokenizer_of_class
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.classify import Speller
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.tokenizer import Tokenizer

TEXTS = [
    *mixed_texts(2, 12),
    *hard_texts(),
    "  two  spaces\tand a tab\n",
    "ﬁne ｆｕｌｌ ``quoted'' café CAFÉ",
    "a<mask>b [MASK] </s>",
]


def is_long(text: str) -> bool:
    """Whether it is one of those of thousands of letters, which take four times as long as all others."""
    return len(text) >= 2_000


SHORT_TEXTS = [text for text in TEXTS if not is_long(text)]

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
    "llama": ("llama", "LlamaTokenizer", {"add_bos_token": True, "legacy": False}),
    "llama_legacy": ("llama", "LlamaTokenizer", {"legacy": True}),
    "llama_bare": ("qwen3", "LlamaTokenizer", {"add_prefix_space": False}),
    "herbert": ("bert", "HerbertTokenizer", {}),
    "mbart": ("mbart", "MBartTokenizer", {"src_lang": "fr_XX"}),
    "mbart50": ("mbart", "MBart50Tokenizer", {}),
    "nllb": ("nllb-moe", "NllbTokenizer", {"src_lang": "eng_Latn"}),
    "nllb_legacy": ("nllb-moe", "NllbTokenizer", {"legacy_behaviour": True}),
    "xlnet": ("xlnet", "XLNetTokenizer", {}),
    "xlnet_lower": ("xlnet", "XLNetTokenizer", {"do_lower_case": True, "keep_accents": True}),
    "gpt2": ("gpt2", "GPT2Tokenizer", {}),
    "gpt2_spaced": ("gpt_neo", "GPT2Tokenizer", {"add_prefix_space": True, "add_bos_token": True}),
    "gpt_neox": ("gpt_neox", "GPTNeoXTokenizer", {}),
    "gpt_neox_spaced": ("gpt_neox", "GPTNeoXTokenizer", {"add_prefix_space": True, "add_eos_token": True}),
    "deberta_1": ("deberta", "DebertaTokenizer", {}),
    "bart": ("bart", "BartTokenizer", {}),
    "convbert": ("convbert", "ConvBertTokenizer", {}),
    "mobilebert": ("mobilebert", "MobileBertTokenizer", {"do_lower_case": False}),
    "squeezebert": ("squeezebert", "SqueezeBertTokenizer", {}),
    "umt5": ("umt5", "T5Tokenizer", {}),
    "modernbert": ("modernbert", "RobertaTokenizer", {"add_prefix_space": True}),
    "mistral": ("mistral", "GemmaTokenizer", {"tokenizer_class": "LlamaTokenizer"}),
    "gte": ("gte", "XLMRobertaTokenizer", {}),
    "rembert": ("rembert", "RemBertTokenizer", {}),
    "rembert_lower": ("rembert", "RemBertTokenizer", {"do_lower_case": True, "keep_accents": False}),
    "rembert_bare": ("rembert", "RemBertTokenizer", {"add_prefix_space": False, "remove_space": False}),
    "split_special_tokens": ("bert", "BertTokenizer", {"split_special_tokens": True}),
    "more_special_tokens": ("bert", "BertTokenizer", {"extra_special_tokens": ["the", "and"]}),
}

# What an older release, or a training run, might have written into tokenizer.json.
FILES: dict[str, dict[str, Any]] = {
    "as_saved": {},
    "bare": {"normalizer": None, "post_processor": None, "decoder": None},
    "another": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 1}}],
            "pair": [{"Sequence": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 1}}],
            "special_tokens": {},
        },
    },
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


def digest_tokens(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Digests of what the class makes of texts, and the ids of a pair."""
    reference = load_class(folder)
    digests = []
    for text in texts:
        read = reference(text, return_offsets_mapping=True)
        joined = reference.convert_tokens_to_string(read.tokens())
        digests.append(digest_of(read["input_ids"], read["offset_mapping"], joined))
    return {"texts": digests, "pair": reference(TEXTS[0], TEXTS[1])["input_ids"]}


def digest_of(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def load_class(folder: Path) -> Any:
    with quiet_library():
        import transformers

        return transformers.AutoTokenizer.from_pretrained(str(folder))


def token_types(folder: Path) -> list[list[int] | None]:
    """The ids and the types of a pair, as transformers has them."""

    def read() -> list[list[int] | None]:
        found = load_class(folder)("a", "a")
        return [found["input_ids"], found.get("token_type_ids")]

    found: list[list[int] | None] = answer(["types", digest_directory(folder)], read)
    return found


# No architecture has this class without naming it.
NAMED = {"herbert"}
# One case of each kind of vocabulary.
KINDS = ("bert", "xlm_roberta", "roberta", "gemma", "herbert")


def first_of_each(place: int) -> list[str]:
    """The first case of each family, which is at the place 0, or of each class, at 1."""
    return list({case[place]: name for name, case in reversed(CASES.items())}.values())


# The cases that suffice in the quick suite, by whether the class is named and by the file.
QUICK = {
    (True, "as_saved"): CASES,
    (True, "bare"): KINDS,
    (True, "another"): first_of_each(1),
    # Which class it is by the architecture shows where the file says otherwise.
    (False, "another"): first_of_each(0),
    (True, "as_saved, long texts"): KINDS,
}
PARAMS = [
    pytest.param(name, named, file, marks=() if name in QUICK.get((named, file), ()) else pytest.mark.full)
    for named in (True, False)
    for name in CASES
    if named or name not in NAMED
    for file in (*FILES, *(("as_saved, long texts",) if named else ()))
]


@pytest.mark.parametrize(("name", "is_named", "file"), PARAMS)
def test_tokens_are_those_of_the_class(
    base: ModelDescription, tmp_path: Path, name: str, is_named: bool, file: str
) -> None:
    family, class_name, settings = CASES[name]
    file, _, reads_long = file.partition(", ")
    save_tokenizer_of_class(tmp_path, class_name)
    config = {"model_type": family}
    (tmp_path / "config.json").write_text(json.dumps(config))
    written = json.loads((tmp_path / "tokenizer_config.json").read_text())
    written = {**written, **settings}
    if not is_named:
        del written["tokenizer_class"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(written))
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    if file == "another" and document["model"]["type"] == "WordPiece":
        document["model"] |= {"max_input_chars_per_word": 5, "continuing_subword_prefix": "@@"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**document, **FILES[file]}))
    texts = TEXTS if is_named and file == "as_saved" else SHORT_TEXTS
    expected = answer(["tokens", digest_directory(tmp_path), texts], lambda: digest_tokens(tmp_path, texts))
    ours = read_tokenizer(describe(base, tmp_path, config))
    speller = Speller(ours, None)
    for text, digest in zip(texts, expected["texts"], strict=True):
        if is_long(text) != bool(reads_long):
            continue
        found = ours.encode(text)
        assert digest_of(found.ids, found.offsets, speller.join(found.tokens)) == digest, text
    assert ours.encode(TEXTS[0], TEXTS[1]).ids == expected["pair"]


@pytest.mark.parametrize(
    ("family", "class_name", "names"),
    [
        ("bert", "BertTokenizer", ["input_ids", "attention_mask"]),
        ("bert", "PreTrainedTokenizerFast", ["input_ids", "token_type_ids"]),
        ("bert", None, None),
        ("bert", "BertTokenizerFast", None),
        ("bert", "PreTrainedTokenizerFast", None),
        ("bert", "NoSuchTokenizer", None),
        ("roberta", "BertTokenizer", None),
        ("electra", None, None),
        ("electra", "ElectraTokenizerFast", None),
        ("nomic_bert", None, None),
    ],
)
def test_token_types_of_pairs_are_those_of_transformers(
    family: str, class_name: str | None, names: list[str] | None, tmp_path: Path
) -> None:
    directory = save_tiny_bert(tmp_path / "model")  # whose tokenizer.json has types
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": class_name, "model_input_names": names}
    settings = {key: value for key, value in settings.items() if value is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    description = describe_model(locate_model(directory))
    config = {**description.config, "model_type": family}
    (directory / "config.json").write_text(json.dumps(config))
    _, theirs = token_types(directory)
    changed = replace(description, config=config)
    (ours,) = complete(PairTokenizer(Tokenizer.load(changed), changed).encode_in_slices([("a", "a")]))
    assert ours.token_type_ids.tolist() == (theirs or [0] * len(ours))


@pytest.mark.parametrize("names", [None, ["input_ids", "token_type_ids", "attention_mask"]])
def test_token_types_of_byte_pairs_are_zero(base: ModelDescription, names: Any, tmp_path: Path) -> None:
    save_tokenizer_of_class(tmp_path, "RobertaTokenizer")
    config = {"model_type": "roberta"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= {} if names is None else {"model_input_names": names}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    description = describe(base, tmp_path, config)
    (ours,) = complete(PairTokenizer(Tokenizer.load(description), description).encode_in_slices([("a", "a")]))
    ids, types = token_types(tmp_path)
    assert ours.token_ids.tolist() == ids
    assert ours.token_type_ids.tolist() == (types or [0] * 6)


@pytest.mark.parametrize(("family", "named"), [("bert", "RobertaTokenizer"), ("roberta", None)])
def test_a_vocabulary_of_another_kind_than_the_class_is_refused(
    family: str, named: str | None, tmp_path: Path
) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named} if named else {}))
    description = describe_model(locate_model(directory))
    changed = replace(description, config={**description.config, "model_type": family})
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.json has a vocabulary of the kind WordPiece"):
        read_tokenizer(changed)


def test_a_vocabulary_without_the_tokens_around_texts_is_refused(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**settings, "cls_token": "[START]"}))
    with pytest.raises(
        CorruptModel,
        match=r"lacks \[START\] \(cls_token\) with an id below the vocab_size \d+ of .*, which BertTokenizer",
    ):
        read_tokenizer(describe_model(locate_model(directory)))
