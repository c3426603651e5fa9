"""Which tokenizer class a model has is as in transformers; one whose rules are not known here is refused."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import save_tiny_bert
from support.tokenizers_of_class import save_tokenizer_of_class
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.class_names import CLASSES_IN_PYTHON, UNKNOWN_CLASSES, find_class
from vecmill.tokenization.building.classes import CLASSES

KNOWN = {*CLASSES}
TEXT = "What the manual says, in  two words."


def class_of(name: str) -> Any:
    """transformers' class of that name, `None` if it has none."""
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        return tokenizer_class_from_name(name)


def names_in_transformers() -> list[str]:
    """All names that a tokenizer_config.json may give to a class of transformers."""
    import transformers
    from transformers.convert_slow_tokenizer import SLOW_TO_FAST_CONVERTERS
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    names = {*dir(transformers), *SLOW_TO_FAST_CONVERTERS, *filter(None, TOKENIZER_MAPPING_NAMES.values())}
    parts = ("Auto", "Basic", "Character", "Mecab", "PreTrained", "Wordpiece")  # of others, or for all
    found = {name.removesuffix("Fast") for name in names if name.endswith(("Tokenizer", "TokenizerFast"))}
    return sorted(found - {f"{part}Tokenizer" for part in parts})


def decides_itself(found: Any) -> bool:
    """Whether a class does more than read tokenizer.json."""
    from transformers import PreTrainedTokenizerFast

    if found is None or found is PreTrainedTokenizerFast:
        return False
    bases = found.__mro__
    own = bases[: bases.index(PreTrainedTokenizerFast)] if PreTrainedTokenizerFast in bases else bases
    return any("__init__" in base.__dict__ for base in own)


def test_every_class_with_rules_of_its_own_is_known_or_refused() -> None:
    names = names_in_transformers()
    assert len(names) > 90
    missing = [
        name
        for name in names
        if decides_itself(class_of(name))
        and find_class({"tokenizer_class": name}, {}) not in KNOWN | UNKNOWN_CLASSES
    ]
    assert missing == []


def test_no_class_is_refused_that_transformers_does_not_have() -> None:
    assert [name for name in sorted(UNKNOWN_CLASSES) if class_of(name) is None] == []
    assert UNKNOWN_CLASSES.isdisjoint(KNOWN)


def test_classes_in_python_are_those_that_write_no_tokenizer_file() -> None:
    from transformers import PreTrainedTokenizerFast

    written = {name for name in UNKNOWN_CLASSES if issubclass(class_of(name), PreTrainedTokenizerFast)}
    assert UNKNOWN_CLASSES - written == CLASSES_IN_PYTHON


def test_names_of_one_class_are_one_to_us() -> None:
    for name in names_in_transformers():
        ours = find_class({"tokenizer_class": name}, {})
        if ours != name:
            assert class_of(name) is class_of(ours), name
            assert CLASSES[ours].tokens.defaults


def test_families_have_the_class_that_transformers_gives_them() -> None:
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    wrong, found = {}, 0
    for family, theirs in TOKENIZER_MAPPING_NAMES.items():
        ours = find_class({}, {"model_type": family})
        found += bool(ours)
        # None where the class needs sentencepiece's package.
        if ours and theirs is not None and class_of(ours) is not class_of(theirs):
            wrong[family] = (ours, theirs)
    assert wrong == {}
    assert found > 80


@pytest.fixture
def tiny(tmp_path: Path) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path / "model")))


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("bert", {"tokenizer_class": "HerbertTokenizerFast"}),
        ("xlm-roberta", {"tokenizer_class": "MBartTokenizer"}),
        ("llama", {"tokenizer_class": "LlamaTokenizer"}),
        ("herbert", {}),
        ("xlnet", {}),
    ],
)
def test_a_class_whose_rules_are_not_known_is_refused(
    tiny: ModelDescription, family: str, written: dict[str, str]
) -> None:
    name = find_class(written, {"model_type": family})
    changed = replace(tiny, tokenizer_config=written, config={**tiny.config, "model_type": family})
    with pytest.raises(UnsupportedModel, match=f"tokenizer class is {name}, .* 'PreTrainedTokenizerFast'"):
        read_tokenizer(changed)


@pytest.mark.parametrize(
    ("family", "named"),
    [
        ("llama", "LlamaTokenizerFast"),  # as models of Llama 3 name it, though its rules are not theirs
        ("xlnet", "PreTrainedTokenizerFast"),
        ("olmo2", "GPTNeoXTokenizer"),
        ("gpt2", "SomebodysOwnTokenizer"),
    ],
)
def test_tokenizer_json_counts_where_transformers_passes_over_the_class(
    tiny: ModelDescription, family: str, named: str, tmp_path: Path
) -> None:
    import transformers

    folder = tmp_path / "bytes"
    save_tokenizer_of_class(folder, "Qwen2Tokenizer")
    config = {"model_type": family}
    written = {"tokenizer_class": named, "eos_token": "<|endoftext|>"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    changed = replace(tiny, tokenizer_config=written, tokenizer_file=folder / "tokenizer.json", config=config)
    reference = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert type(reference) is transformers.PreTrainedTokenizerFast
    assert read_tokenizer(changed).encode(TEXT).ids == reference(TEXT)["input_ids"]
