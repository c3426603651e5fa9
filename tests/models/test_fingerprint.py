"""A fingerprint changes with whatever changes rows, and with nothing else."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
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
