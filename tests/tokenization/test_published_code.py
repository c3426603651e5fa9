"""The tokenizer of gte-Qwen2 came with code of its own, which ends each text with a token."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.published import Published, edit_json, pooling, save_published
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import locate_model
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
