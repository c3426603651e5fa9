"""Tensors that settings tie are one, unless the files have both and they differ: in every family.

Each family is loaded by transformers from files that have one of the two tensors, both, or copies, and its
outputs are compared with those of our graph for the same files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import (
    TinyFamily,
    build_family,
    open_tiny_family,
    random_sequences,
    reference_rows,
    save_tiny_family,
)
from support.graph_session import GraphSession
from support.scales import in_turns
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.architectures.used_tensors import RecordedWeights
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.models.tied_tensors import Tie
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch

TOLERANCE = 1e-4
ROWS = 60

_BERT: dict[str, Any] = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
_DECODER: dict[str, Any] = {
    **_BERT,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MODERN: dict[str, Any] = {
    **_BERT,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
_T5: dict[str, Any] = {
    "vocab_size": ROWS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 1,
    "num_heads": 4,
}

CLASSES: dict[str, dict[str, Any]] = {
    "AlbertForMaskedLM": {**_BERT, "embedding_size": 16},
    "BertForMaskedLM": _BERT,
    "Data2VecTextForMaskedLM": _BERT,
    "DebertaV2ForMaskedLM": _BERT,
    "DistilBertForMaskedLM": {
        "vocab_size": ROWS,
        "dim": 32,
        "n_layers": 1,
        "n_heads": 4,
        "hidden_dim": 48,
        "max_position_embeddings": 32,
    },
    "ElectraForMaskedLM": {**_BERT, "embedding_size": 16},
    "ErnieForMaskedLM": _BERT,
    "EuroBertForMaskedLM": _DECODER,
    "Gemma3ForCausalLM": {**_DECODER, "query_pre_attn_scalar": 8},
    "GraniteForCausalLM": _DECODER,
    "GteForMaskedLM": _BERT,
    "LlamaForCausalLM": _DECODER,
    "ModernBertForMaskedLM": _MODERN,
    "MPNetForMaskedLM": _BERT,
    "NomicBertForMaskedLM": _BERT,
    "Olmo2ForCausalLM": _DECODER,
    "Phi3ForCausalLM": {key: value for key, value in _DECODER.items() if key != "head_dim"},
    "Qwen3ForCausalLM": _DECODER,
    "RobertaForMaskedLM": _BERT,
    "T5EncoderModel": _T5,
    "T5ForTokenClassification": {**_T5, "num_labels": 5},
}

Tensors = dict[str, FloatArray]


def _other_values(like: FloatArray) -> FloatArray:
    return (0.3 * np.random.default_rng(5).standard_normal(like.shape)).astype(np.float32)


def _give_own(tensors: Tensors, own: str, other: str) -> Tensors:
    return tensors | {own: _other_values(tensors[other])}


def _copy(tensors: Tensors, own: str, other: str) -> Tensors:
    return tensors | {own: tensors[other].copy()}


def _turn_round(tensors: Tensors, own: str, other: str) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != other} | {own: tensors[other]}


STATES: dict[str, Callable[[Tensors, str, str], Tensors]] = {
    "its own differs": _give_own,
    "its own is a copy": _copy,
    "its own is alone": _turn_round,
}


def _save(folder: Path, name: str, **settings: Any) -> TinyFamily:
    return save_tiny_family(folder, name, **{**CLASSES[name], "tie_word_embeddings": True, **settings})


def _head(name: str) -> HeadKind | None:
    if name == "T5EncoderModel":
        return None
    return HeadKind.TOKENS if name.endswith("TokenClassification") else HeadKind.VOCABULARY


def _ties(tiny: TinyFamily) -> tuple[Tie, ...]:
    return read_encoder(tiny.config, "config.json").ties


def _prefix(tiny: TinyFamily) -> str:
    return find_graph_class(read_encoder(tiny.config, "config.json")).prefix


def _stored_names(tiny: TinyFamily, tie: Tie) -> tuple[str, str]:
    """The names of the two tensors in a file that the class saved: it saves the second of a pair alone."""
    stored = safetensors.numpy.load_file(tiny.weights_file)
    other = next(name for name in (_prefix(tiny) + tie.other, tie.other) if name in stored)
    prefix = _prefix(tiny) if other != tie.other and not tie.of_head else ""
    assert prefix + tie.own not in stored
    return prefix + tie.own, other


def _change(tiny: TinyFamily, name: str, state: str) -> TinyFamily:
    """The model with files of that `state`, as transformers loads it from them."""
    tensors: Tensors = safetensors.numpy.load_file(tiny.weights_file)
    for names in [_stored_names(tiny, tie) for tie in _ties(tiny)]:
        tensors = STATES[state](tensors, *names)
    safetensors.numpy.save_file(tensors, tiny.weights_file, {"format": "pt"})
    return open_tiny_family(tiny.weights_file.parent, name)


def _difference(tiny: TinyFamily, name: str) -> float:
    sequences = random_sequences((7,), vocab_size=ROWS)
    model = build_family(tiny, _head(name), labels=5)
    found = GraphSession(model).run(Batch.of(sequences)).values
    (expected,) = reference_rows(tiny.reference, sequences)
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize(("name", "state"), in_turns(CLASSES, STATES))
def test_the_files_decide_which_tensors_are_one(name: str, state: str, tmp_path: Path) -> None:
    tiny = _change(_save(tmp_path, name), name, state)
    assert _difference(tiny, name) <= TOLERANCE


@pytest.mark.parametrize(
    "name", ["GteForMaskedLM", "NomicBertForMaskedLM", "Qwen3ForCausalLM", "T5EncoderModel"]
)
def test_settings_that_tie_nothing_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    tiny = _save(tmp_path, name, tie_word_embeddings=False)  # saves both
    assert _difference(tiny, name) <= TOLERANCE


@pytest.mark.parametrize("missing", ["own", "other"])
@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("T5")])
def test_without_a_tie_both_must_be_there(name: str, missing: str, tmp_path: Path) -> None:
    tiny = _save(tmp_path, name)
    tensors: Tensors = safetensors.numpy.load_file(tiny.weights_file)
    own, other = _stored_names(tiny, _ties(tiny)[0])
    if missing == "other":
        tensors = _turn_round(tensors, own, other)
    untied = tiny.with_config(tie_word_embeddings=False)._with_tensors(tensors)
    with pytest.raises(CorruptModel, match="has no tensor"):
        build_family(untied, HeadKind.VOCABULARY)


@pytest.mark.parametrize("name", CLASSES)
def test_the_ties_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    tiny = _save(tmp_path, name)
    is_t5 = name == "T5ForTokenClassification"
    found = dict(_stored_names(tiny, tie) for tie in _ties(tiny))
    tied = tiny.reference.ask(
        "ties", lambda model: {**(model.transformer if is_t5 else model)._tied_weights_keys}
    )
    prefix = "transformer." if is_t5 else ""
    assert found == {
        prefix + key: prefix + value for key, value in tied.items() if "decoder.embed" not in key
    }
    assert {tie.prefix for tie in _ties(tiny) if not tie.reads_copies} <= {_prefix(tiny)}


def test_rows_that_are_read_decide_alone(tmp_path: Path) -> None:
    tie = Tie("head", "table")
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    other = table.copy()
    other[3] += 1
    safetensors.numpy.save_file({"head": other, "table": table}, tmp_path / "model.safetensors")
    weights = Weights.open(tmp_path / "model.safetensors")
    assert weights.tied([tie]).tensor("head", (4, 3)).name == "head"
    assert weights.tied([tie], rows=(0, 2)).tensor("head", (4, 3)).name == "table"
    assert weights.tied([tie], rows=(0, 3)).tensor("head", (4, 3)).name == "head"
    assert weights.tied([tie], rows=(0, 99)).tensor("head", (4, 3)).name == "table"


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_copies_of_another_type_are_copies(kind: str, tmp_path: Path) -> None:
    import ml_dtypes  # noqa: F401

    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    files = {"head": table.astype(kind), "table": table}
    safetensors.numpy.save_file(files, tmp_path / "model.safetensors")
    weights = Weights.open(tmp_path / "model.safetensors").tied([Tie("head", "table")])
    assert weights.tensor("head", (4, 3)).name == "table"


@pytest.mark.parametrize("kind", ["int8", "uint8", "bool", "float8_e4m3fn"])
def test_a_head_of_a_type_that_is_not_read_is_refused(kind: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    table = torch.ones(4, 3)
    files = {"head": table.to(getattr(torch, kind)), "table": table}
    save_file(files, tmp_path / "model.safetensors")
    weights = Weights.open(tmp_path / "model.safetensors").tied([Tie("head", "table")])
    with pytest.raises(UnsupportedModel, match="'head' holds"):
        weights.tensor("head", (4, 3))


@pytest.mark.parametrize("shape", [(3, 4), (4, 2), (4,), ()])
def test_tensors_of_another_shape_are_no_copies(shape: tuple[int, ...], tmp_path: Path) -> None:
    files = {"head": np.zeros(shape, np.float32), "table": np.zeros((4, 3), np.float32)}
    safetensors.numpy.save_file(files, tmp_path / "model.safetensors")
    weights = Weights.open(tmp_path / "model.safetensors").tied([Tie("head", "table")])
    with pytest.raises(CorruptModel, match="'head' has shape"):
        weights.tensor("head", (4, 3))


def test_a_copy_is_recorded_as_the_tensor_that_it_copies(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    names: list[set[str]] = []
    for files in ({"table": table}, {"table": table, "head": table}):
        safetensors.numpy.save_file(dict(files), tmp_path / "model.safetensors")
        weights = Weights.open(tmp_path / "model.safetensors").tied([Tie("head", "table")])
        recorded = RecordedWeights.of(weights)
        recorded.tensor("head", (4, 3))
        recorded.tensor("table", (4, 3))
        names.append(set(recorded.used))
    assert names == [{"table"}, {"table"}]
