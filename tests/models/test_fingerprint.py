"""A fingerprint changes with whatever changes rows, and with nothing else."""

import dataclasses
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from support.tokenizer_directories import CLASSES as TOKENIZER_CLASSES
from support.tokenizers_of_class import make_tokenizer
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel
from vecmill.models import (
    ModelDescription,
    Normalize,
    Pooling,
    PoolingMode,
    Task,
    corrections,
    fingerprint,
    fingerprint_model,
    locate_model,
)
from vecmill.models.corrections import Correction
from vecmill.models.fingerprint import GRAPH_VERSION, hash_file
from vecmill.models.heads import Head, HeadKind, MultiVector, PairTemplate
from vecmill.models.stages import Dense, Splade
from vecmill.serving_plan.identity import identify_space
from vecmill.serving_plan.space_settings import read_library
from vecmill.tokenization.building.class_names import find_class
from vecmill.tokenization.building.token_changes import digest_changes
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles


@pytest.fixture
def description(tmp_path: Path) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path / "model", TinyBert())))


CHANGES: dict[str, dict[str, Any]] = {
    "pooling": {"stages": (Pooling((PoolingMode.CLS,)), Normalize())},
    "prompt": {"stages": (Pooling((PoolingMode.MEAN,), include_prompt=False), Normalize())},
    "normalize": {"stages": (Pooling((PoolingMode.MEAN,)),)},
    "max_tokens": {"max_tokens": 32},
    "lowercase": {"lowercase": True},
    "task": {"task": Task.RERANK},
    "head": {"head": Head(HeadKind.SEQUENCE)},
    "special_tokens": {"special_tokens": False},
    "pair_template": {"pair_template": PairTemplate("", "{query}", "", "")},
    "multi_vector": {"multi_vector": MultiVector()},
    "tokenizer_config": {"tokenizer_config": {"do_lower_case": False}},
    "splade": {"stages": (Splade(twice=True),)},
    "config": {"config": {"model_type": "bert", "hidden_act": "relu"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_settings_change_it(description: ModelDescription, change: dict[str, Any]) -> None:
    assert fingerprint_model(dataclasses.replace(description, **change)) != fingerprint_model(description)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_one_byte_changes_it(description: ModelDescription, name: str) -> None:
    before = fingerprint_model(description)
    path = description.directory / name
    path.write_bytes(path.read_bytes() + b" ")
    assert fingerprint_model(description) != before


def test_weights_of_stages_change_it_and_their_place_does_not(
    description: ModelDescription, tmp_path: Path
) -> None:
    def fingerprint_with(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        stage = Dense(tmp_path / name, 32, 16)
        return fingerprint_model(dataclasses.replace(description, stages=(stage,)))

    assert fingerprint_with("here", b"1") == fingerprint_with("there", b"1")
    assert fingerprint_with("here", b"1") != fingerprint_with("here", b"2")


def test_every_part_of_the_weights_changes_it(description: ModelDescription, tmp_path: Path) -> None:
    def fingerprint_with(*contents: bytes) -> str:
        paths = tuple(tmp_path / str(index) for index in range(len(contents)))
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return fingerprint_model(dataclasses.replace(description, weights_files=paths))

    assert len({fingerprint_with(*contents) for contents in ((b"ab",), (b"a", b"b"), (b"b", b"a"))}) == 3


def test_our_own_graphs_change_it(description: ModelDescription, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint_model(description)
    monkeypatch.setattr(fingerprint, "GRAPH_VERSION", GRAPH_VERSION + 1)
    assert fingerprint_model(description) != before


def test_name_and_place_do_not_change_it(description: ModelDescription, tmp_path: Path) -> None:
    twin = describe_model(locate_model(save_tiny_bert(tmp_path / "twin", TinyBert())))
    assert twin.name != description.name
    assert fingerprint_model(twin) == fingerprint_model(description)


def test_weights_are_checked_against_what_was_promised(description: ModelDescription) -> None:
    right = dataclasses.replace(description, weights_sha256=hash_file(description.weights_files[0]))
    assert fingerprint_model(right) == fingerprint_model(description)
    with pytest.raises(CorruptModel, match="is not what was published"):
        fingerprint_model(dataclasses.replace(description, weights_sha256="0" * 64))


def test_the_embedded_weights_are_those_published() -> None:
    description = describe_model(locate_model())
    assert hash_file(description.weights_files[0]) == description.weights_sha256


def test_the_fingerprint_of_the_embedded_model_stays() -> None:
    """Vectors on disk and optimised directories are valid for one fingerprint."""
    assert fingerprint_model(describe_model(locate_model())) == "0164c82bc706a4e5be6ab3335be6476b"


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match="gone cannot be read"):
        hash_file(tmp_path / "gone")


def test_a_correction_changes_the_models_that_it_concerns(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint_model(description)
    monkeypatch.setattr(corrections, "CORRECTIONS", (Correction("one", lambda _: False),))
    assert fingerprint_model(description) == before
    monkeypatch.setattr(corrections, "CORRECTIONS", (Correction("one", lambda _: True),))
    assert fingerprint_model(description) != before


def list_with(folder: Path, **flags: bool) -> None:
    """tokenizer_config.json lists the tokens of tokenizer.json, the mask token with other flags."""
    document = json.loads((folder / "tokenizer.json").read_text())
    listed = {str(token.pop("id")): token for token in document["added_tokens"]}
    (mask,) = (token for token in listed.values() if token["content"] == "[MASK]")
    mask.update(flags)
    edit_json(folder / "tokenizer_config.json", added_tokens_decoder=listed)


def to_vocabulary(folder: Path, *, end: str = "\n") -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    pieces = sorted(vocabulary, key=vocabulary.get)
    (folder / "vocab.txt").write_text("".join(piece + (end if piece == "the" else "\n") for piece in pieces))


SAME_TOKENS: dict[str, Callable[[Path], None]] = {
    "nothing_beside": lambda folder: None,
    "special_tokens_map": lambda folder: edit_json(folder / "special_tokens_map.json", cls_token="[CLS]"),
    "flags_repeated": lambda folder: edit_json(
        folder / "special_tokens_map.json", mask_token={"content": "[MASK]", "lstrip": False}
    ),
    "listed_again": list_with,
    "piece_marked": lambda folder: edit_json(
        folder / "tokenizer_config.json", additional_special_tokens=["the"]
    ),
    "vocabulary": to_vocabulary,
}
OTHER_TOKENS: dict[str, Callable[[Path], None]] = {
    "special_tokens_map": lambda folder: edit_json(folder / "special_tokens_map.json", pad_token="<ent>"),
    "flags": lambda folder: list_with(folder, lstrip=True),
    "added_tokens": lambda folder: edit_json(folder / "added_tokens.json", **{"<ent>": 900}),
    "not_listed": lambda folder: edit_json(folder / "tokenizer_config.json", added_tokens_decoder={}),
    "further_token": lambda folder: edit_json(
        folder / "tokenizer_config.json", extra_special_tokens=["<ent>"]
    ),
    "lines": lambda folder: to_vocabulary(folder, end=" \n"),
}


@pytest.mark.parametrize("name", SAME_TOKENS)
def test_what_repeats_the_tokens_changes_no_tokens(name: str, tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    SAME_TOKENS[name](folder)
    assert describe_model(locate_model(folder)).token_changes is None


@pytest.mark.parametrize("name", OTHER_TOKENS)
def test_what_was_kept_for_other_tokens_is_not_read(name: str, tmp_path: Path) -> None:
    """That is, vectors of earlier versions, which had the tokens of tokenizer.json, and read lines whole."""
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    OTHER_TOKENS[name](folder)
    changed = describe_model(locate_model(folder))
    before = dataclasses.replace(changed, token_changes=None)
    assert fingerprint_model(changed) != fingerprint_model(before)
    other = dataclasses.replace(changed, token_changes="of other tokens")
    assert len({fingerprint_model(each) for each in (changed, before, other)}) == 3


@pytest.mark.parametrize("class_name", TOKENIZER_CLASSES)
def test_directories_that_transformers_saves_change_no_tokens(class_name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        make_tokenizer(class_name).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    listed = {str(token.pop("id")): token for token in document["added_tokens"]}
    path = tmp_path / "tokenizer.json"
    for settings in (config, {**config, "added_tokens_decoder": listed}):  # as versions 5 and 4 do
        files = TokenizerFiles.read(path, find_class(settings, {}), settings)
        assert digest_changes(files) is None


def test_a_kept_space_of_other_tokens_is_not_read(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    edit_json(folder / "special_tokens_map.json", pad_token="<ent>")
    changed = describe_model(locate_model(folder))
    before = dataclasses.replace(changed, token_changes=None)
    cache, now = tmp_path / "cache", time.time() + 60
    (folder / "special_tokens_map.json").rename(tmp_path / "aside")
    library = read_library(before)
    (tmp_path / "aside").rename(folder / "special_tokens_map.json")
    kept = identify_space(before, cache, load_tokenizer=lambda _: library, clock=lambda: now)
    assert kept.digest == identify_space(before, cache, clock=lambda: now).digest
    assert identify_space(changed, cache, clock=lambda: now).digest != kept.digest
