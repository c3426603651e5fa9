"""The tokenizers of Qwen and gte-Qwen2 came with code of their own, whose tokens they have without it."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from parity.test_tokenizers import TEXTS
from parity.test_vocabularies import save_ranks
from support.published import Published, edit_json, pooling, save_published
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.tokenizer_file import LARGEST_TOKENIZER
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.text_rules import QWEN_WORDS as WORDS
from vecmill.tokenization.building.tiktoken_files import read_ranks
from vecmill.tokenization.tokenizer import Tokenizer

SIZES = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
CODE = ["tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"]


def save(folder: Path, processor: dict[str, Any] | None, **config: Any) -> Path:
    """A Qwen2 model whose tokenizer.json has `processor`, and whose tokenizer_config.json says `config`."""
    save_published(folder, Published("Qwen2Model", "Qwen2Tokenizer", (pooling("mean"),), SIZES))
    edit_json(folder / "tokenizer.json", post_processor=processor)
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": CODE}, **config)
    return folder


def tokens_of(folder: Path) -> list[str]:
    tokenizer = Tokenizer.load(describe_model(locate_model(folder)))
    (sequence,) = tokenizer.encode(["some words"])
    return [str(tokenizer.library.id_to_token(token)) for token in sequence.token_ids]


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


@pytest.mark.parametrize(("asked", "count"), [(True, 1), (False, 0)])
def test_the_token_is_added_where_the_settings_ask_for_it(asked: bool, count: int, tmp_path: Path) -> None:
    tokens = tokens_of(save(tmp_path / "model", BYTE_LEVEL, add_eos_token=asked, eos_token="<|endoftext|>"))
    assert tokens.count("<|endoftext|>") == count
    assert tokens[-1:] == ["<|endoftext|>"] * count or not count


def test_a_template_of_the_file_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "other", BYTE_LEVEL)
    vocabulary = json.loads((tmp_path / "other/tokenizer.json").read_text())["model"]["vocab"]
    first = sorted(vocabulary, key=vocabulary.get)[5]
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": first, "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {first: {"id": first, "ids": [vocabulary[first]], "tokens": [first]}},
    }
    tokens = tokens_of(save(tmp_path / "model", template, add_eos_token=True))
    assert tokens[-1] == first
    assert "<|endoftext|>" not in tokens


def test_other_code_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", BYTE_LEVEL)
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [*CODE, "own.Tokenizer"]})
    with pytest.raises(UnsupportedModel, match="the tokenizer's own code is never run"):
        describe_model(locate_model(folder))


def save_qwen(folder: Path, **config: Any) -> Path:
    """A model with the vocabulary file of Qwen, version 1, and the names of its code."""
    save_published(folder, Published("Qwen2Model", "Qwen2Tokenizer", (pooling("mean"),), SIZES))
    (folder / "tokenizer.json").unlink()
    save_ranks(folder / "qwen.tiktoken")
    code = {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]}
    edit_json(folder / "config.json", model_type="qwen3")
    edit_json(
        folder / "tokenizer_config.json", **{"auto_map": code, "tokenizer_class": "QWenTokenizer", **config}
    )
    return folder


def test_the_first_qwen_has_the_tokens_of_tiktoken(tmp_path: Path) -> None:
    import tiktoken

    folder = save_qwen(tmp_path / "model")
    ranks = read_ranks(folder / "qwen.tiktoken", (folder / "qwen.tiktoken").read_bytes(), LARGEST_TOKENIZER)
    special = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *(f"<|extra_{number}|>" for number in range(205)),
    ]
    numbers = {token: len(ranks) + place for place, token in enumerate(special)}
    reference = tiktoken.Encoding("qwen", pat_str=WORDS, mergeable_ranks=ranks, special_tokens=numbers)
    description = describe_model(locate_model(folder))
    ours = read_tokenizer(description)
    for text in [
        *TEXTS,
        "<|im_start|>user\nread<|im_end|>  <|extra_204|><|extra_205|>",
        "a<|im_end|>\u0338b",
    ]:
        expected = reference.encode(unicodedata.normalize("NFC", text), allowed_special="all")
        assert ours.encode(text).ids == expected, text


def test_the_first_qwen_needs_its_class(tmp_path: Path) -> None:
    folder = save_qwen(tmp_path / "model", tokenizer_class="Qwen2Tokenizer")
    with pytest.raises(UnsupportedModel, match=r"qwen\.tiktoken and no tokenizer\.json.* 'Qwen2Tokenizer'"):
        read_tokenizer(describe_model(locate_model(folder)))
