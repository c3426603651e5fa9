"""A correction concerns exactly the models whose outputs were wrong: no other model has another identity."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.models import ModelDescription, fingerprint_model, locate_model
from vecmill.models.corrections import list_corrections

TYPES, SPARSE = "token types that no tokenizer gave", "block-sparse attention"
WITHOUT_TYPES = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096}
WITH_TYPES = {**WITHOUT_TYPES, "tokenizer_class": "BertTokenizer"}


def describe(
    folder: Path, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any] = WITHOUT_TYPES
) -> ModelDescription:
    """A directory with these settings, whatever its weights."""
    directory = save_tiny_bert(folder / "model", TinyBert())
    settings = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**settings, **config}))
    (directory / "sentence_bert_config.json").unlink(missing_ok=True)
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return describe_model(locate_model(directory))


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neo", "xlm", "flaubert", "gptj", "ctrl"])
def test_models_that_got_token_types_which_their_tokenizer_does_not_give(
    model_type: str, tmp_path: Path
) -> None:
    assert list_corrections(describe(tmp_path, {"model_type": model_type})) == (TYPES,)


@pytest.mark.parametrize(
    ("model_type", "tokenizer_config"),
    [
        ("gpt2", WITH_TYPES),  # published Chinese models
        ("gpt2", {**WITHOUT_TYPES, "model_input_names": ["input_ids", "token_type_ids"]}),
        ("roformer", WITHOUT_TYPES),  # which reads no types as types 0
        ("xlnet", WITHOUT_TYPES),
        ("opt", WITHOUT_TYPES),
        ("bert", WITHOUT_TYPES),
    ],
)
def test_models_for_which_the_types_change_nothing(
    model_type: str, tokenizer_config: Mapping[str, Any], tmp_path: Path
) -> None:
    assert not list_corrections(describe(tmp_path, {"model_type": model_type}, tokenizer_config))


@pytest.mark.parametrize(
    ("settings", "longest", "concerned"),
    [
        ({}, 4096, True),
        ({}, 705, True),
        ({}, 704, False),  # computed with full attention by transformers too
        ({"attention_type": "original_full"}, 4096, False),
        ({"block_size": 16, "num_random_blocks": 2}, 145, True),
        ({"block_size": 16, "num_random_blocks": 2}, 144, False),
        ({"model_type": "bigbird_pegasus"}, 4096, True),
        ({"model_type": "longformer"}, 4096, False),
    ],
)
def test_models_whose_long_texts_lost_their_sparse_attention(
    settings: Mapping[str, Any], longest: int, concerned: bool, tmp_path: Path
) -> None:
    config = {"model_type": "big_bird", "max_position_embeddings": 5000, **settings}
    found = describe(tmp_path, config, {**WITHOUT_TYPES, "model_max_length": longest})
    assert list_corrections(found) == ((SPARSE,) if concerned else ())


@pytest.mark.parametrize(
    ("config", "concerned"),
    [
        ({"model_type": "t5", "num_layers": 6}, False),
        ({"model_type": "t5", "num_layers": 12, "num_hidden_layers": 12}, False),
        ({"model_type": "t5", "num_hidden_layers": 12}, True),
        ({"model_type": "distilbert", "n_layers": 6}, False),
        ({"model_type": "distilbert", "num_hidden_layers": 3}, False),  # which was read
        ({"model_type": "distilbert", "n_layers": 6, "num_hidden_layers": 3}, True),
    ],
)
def test_models_whose_sizes_have_other_names(
    config: Mapping[str, Any], concerned: bool, tmp_path: Path
) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    sizes = {"vocab_size": 1000, "d_model": 32, "dim": 32, "n_heads": 4}
    (directory / "config.json").write_text(json.dumps({**sizes, **config}))
    assert ("other names of sizes" in list_corrections(describe_model(locate_model(directory)))) is concerned


def test_a_graph_that_another_program_exported_was_right(tmp_path: Path) -> None:
    found = describe(tmp_path, {"model_type": "gpt2"})
    exported = dataclasses.replace(found, weights_files=(found.directory / "model.onnx",))
    assert not list_corrections(exported)


def test_the_fingerprint_of_a_model_changes_with_a_correction_that_concerns_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    concerned = describe(tmp_path / "gpt2", {"model_type": "gpt2"})
    other = describe(tmp_path / "opt", {"model_type": "opt"})
    after = [fingerprint_model(each) for each in (concerned, other)]
    monkeypatch.setattr("vecmill.models.corrections.CORRECTIONS", ())
    before = [fingerprint_model(each) for each in (concerned, other)]
    assert after[0] != before[0]
    assert after[1] == before[1]
