"""What was kept of a model whose tied tensors differ is not read again, and all other identities stay."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.lora_adapters import Lora, save_adapter
from support.task_models import save_causal
from support.tiny_models import save_tiny_bert
from vecmill.architectures.registry import read_encoder
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel
from vecmill.models import ModelDescription, Task, corrections, fingerprint_model, locate_model
from vecmill.models.corrections import list_corrections
from vecmill.models.fingerprint import prepared_name
from vecmill.models.heads import Head, HeadKind
from vecmill.serving_plan.identity import identify_space
from vecmill.values.aliases import FloatArray

TABLE = np.arange(24, dtype=np.float32).reshape(8, 3)
OTHER = TABLE + (np.arange(8) == 7)[:, None]  # differs in the last row
WORDS = Head(HeadKind.VOCABULARY)
CASES: dict[str, tuple[dict[str, Any], Head | None, str, str]] = {
    "decoder": (
        {"model_type": "qwen3", "tie_word_embeddings": True},
        Head(HeadKind.YES_NO, token_ids=(7, 1)),
        "lm_head.weight",
        "model.embed_tokens.weight",
    ),
    "modernbert": (
        {"model_type": "modernbert"},
        WORDS,
        "decoder.weight",
        "model.embeddings.tok_embeddings.weight",
    ),
    "nomic_bert": (
        {"model_type": "nomic_bert"},
        WORDS,
        "cls.predictions.decoder.weight",
        "nomic_bert.embeddings.word_embeddings.weight",
    ),
    "nomic_bert, not tied": (
        {"model_type": "nomic_bert", "tie_word_embeddings": False},
        WORDS,
        "cls.predictions.decoder.weight",
        "nomic_bert.embeddings.word_embeddings.weight",
    ),
    "gte": ({"model_type": "new"}, WORDS, "lm_head.decoder.weight", "new.embeddings.word_embeddings.weight"),
    "t5": ({"model_type": "t5"}, None, "encoder.embed_tokens.weight", "shared.weight"),
    "t5 with a head": (
        {"model_type": "t5"},
        Head(HeadKind.TOKENS),
        "transformer.encoder.embed_tokens.weight",
        "transformer.shared.weight",
    ),
}


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., ModelDescription]:
    """A description with these settings and head, whose weights file has these tensors."""
    plain = describe_model(locate_model(save_tiny_bert(tmp_path / "plain")))

    def made(config: dict[str, Any], head: Head | None, tensors: dict[str, FloatArray]) -> ModelDescription:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.safetensors"
        safetensors.numpy.save_file(tensors, path)
        encoder = read_encoder(config, "config.json")
        return replace(plain, config=config, encoder=encoder, head=head, weights_files=(path,))

    return made


@pytest.mark.parametrize("name", CASES)
def test_tensors_that_differ_are_corrected(name: str, describe: Callable[..., ModelDescription]) -> None:
    config, head, own, other = CASES[name]
    affected = describe(config, head, {own: OTHER, other: TABLE})
    assert list_corrections(affected) == ("own tied tensors",)


@pytest.mark.parametrize("name", CASES)
def test_a_single_tensor_or_a_copy_changes_nothing(
    name: str, describe: Callable[..., ModelDescription]
) -> None:
    config, head, own, other = CASES[name]
    for tensors in ({other: TABLE}, {own: TABLE, other: TABLE}, {own: TABLE}):
        assert list_corrections(describe(config, head, tensors)) == ()


def test_models_that_do_not_read_the_tensor_keep_what_they_have(
    describe: Callable[..., ModelDescription],
) -> None:
    config, _, own, other = CASES["decoder"]
    both = {own: OTHER, other: TABLE}
    unread = Head(HeadKind.YES_NO, token_ids=(2, 1))  # rows that do not differ
    assert list_corrections(describe(config, unread, both)) == ()
    assert list_corrections(describe(config, None, both)) == ()
    assert list_corrections(describe({**config, "tie_word_embeddings": False}, WORDS, both)) == ()
    bert = {"model_type": "bert"}
    names = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    assert list_corrections(describe(bert, WORDS, dict(zip(names, (OTHER, TABLE), strict=True)))) == ()


def test_what_an_earlier_version_prepared_is_not_read_if_the_model_is_affected(
    describe: Callable[..., ModelDescription], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, head, own, other = CASES["t5"]
    affected = describe(config, head, {own: OTHER, other: TABLE})
    unaffected = describe(config, head, {own: TABLE, other: TABLE})
    now = [(prepared_name(one), fingerprint_model(one)) for one in (affected, unaffected)]
    monkeypatch.setattr(corrections, "CORRECTIONS", ())
    before = [(prepared_name(one), fingerprint_model(one)) for one in (affected, unaffected)]
    assert not set(now[0]) & set(before[0])
    assert now[1] == before[1]


def test_weights_that_are_not_there_are_named(describe: Callable[..., ModelDescription]) -> None:
    config, head, _, other = CASES["t5"]
    description = describe(config, head, {other: TABLE})
    description.weights_files[0].unlink()
    with pytest.raises(CorruptModel, match="cannot be read: No such file"):
        list_corrections(description)


def _judge(
    folder: Path, tensors: Callable[[dict[str, FloatArray]], dict[str, FloatArray]]
) -> ModelDescription:
    save_causal(folder)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(tensors(safetensors.numpy.load_file(path)), path, {"format": "pt"})
    return describe_model(locate_model(folder), Task.RERANK)


def test_the_space_changes_with_an_output_of_its_own_alone(tmp_path: Path) -> None:
    table = "model.embed_tokens.weight"
    plain = identify_space(_judge(tmp_path / "plain", lambda found: found))
    copied = identify_space(
        _judge(tmp_path / "copied", lambda found: {**found, "lm_head.weight": found[table]})
    )
    turned = lambda found: {**found, "lm_head.weight": found[table] + 1}  # noqa: E731
    assert copied.digest == plain.digest
    assert identify_space(_judge(tmp_path / "own", turned)).digest != plain.digest


@pytest.mark.parametrize("lora", [Lora((), saved=("lm_head",)), Lora(("lm_head",))], ids=["whole", "adapted"])
def test_output_weights_that_an_adapter_changes_are_corrected(lora: Lora, tmp_path: Path) -> None:
    model, _ = save_causal(tmp_path / "base")
    path = tmp_path / "base/model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    assert list_corrections(describe_model(locate_model(tmp_path / "base"), Task.RERANK)) == ()
    save_adapter(tmp_path / "adapter", model, lora, str(tmp_path / "base"))
    description = describe_model(locate_model(tmp_path / "adapter"), Task.RERANK)
    assert list_corrections(description) == ("own tied tensors",)
