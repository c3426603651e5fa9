"""Small models of the settings of the census are served, and give the numbers of sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest

from support.census import read_census
from support.reference import load_reference
from support.shrunk_models import WITHOUT_CLASS, is_comparable, name_code, save_shrunk
from support.source_tree import ROOT
from support.texts import hard_texts, mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, locate_model
from vecmill.requests import EmbedSparse
from vecmill.values.aliases import FloatArray

SEED = 29
# Some of these small tokenizers make no token of a blank text.
TEXTS = [text for text in [*mixed_texts(SEED, 6), *hard_texts()[::5]] if text.strip()]
PAIRS = [(TEXTS[0], document) for document in TEXTS[1:]]
TOLERANCE = 1e-4
MODELS = {model.name: model for model in read_census()}
# One of each kind of settings in the ordinary run; all with `full`.
FEW = (
    "BAAI/bge-reranker-base",
    "cross-encoder/nli-deberta-v3-base",
    "google/embeddinggemma-300m",
    "intfloat/multilingual-e5-small",
    "naver/splade-v3",
    "Qwen/Qwen3-Embedding-0.6B",
    "sentence-transformers/all-mpnet-base-v2",
    "sentence-transformers/paraphrase-albert-small-v2",
)
CASES = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.full)
    for name, model in MODELS.items()
    if is_comparable(model)
]


def compute_reference(folder: Path, task: Task) -> FloatArray:
    """What sentence-transformers computes, each text alone. The first text is the query of all pairs."""
    if task is Task.EMBED:
        return np.asarray(load_reference(folder).float().encode(TEXTS, batch_size=1), np.float32)
    if task is Task.SPARSE:
        encoder = load_reference(folder, "SparseEncoder")
        return np.asarray(encoder.encode(TEXTS, batch_size=1, convert_to_sparse_tensor=False), np.float32)
    scorer = load_reference(folder, "CrossEncoder")
    softmax = task is Task.CLASSIFY
    return np.asarray(scorer.predict(PAIRS, batch_size=1, apply_softmax=softmax), np.float32)


def compute_ours(folder: Path, cache: Path, task: Task) -> FloatArray:
    """What we compute of the same texts and pairs."""
    with SyncMill(folder, MillConfig(cache_dir=cache)) as mill:
        match task:
            case Task.EMBED:
                return np.asarray(mill.embed(TEXTS), np.float32)
            case Task.SPARSE:
                rows = np.zeros((len(TEXTS), mill.info.dim), np.float32)
                for row, found in zip(rows, mill.run(EmbedSparse(tuple(TEXTS))).embeddings, strict=True):
                    row[found.columns] = found.values
                return rows
            case Task.CLASSIFY:
                return mill.classify(PAIRS).scores
            case _:
                return np.asarray(mill.rerank(TEXTS[0], TEXTS[1:]).scores, np.float32)


@pytest.mark.parametrize("name", CASES)
def test_a_small_model_of_the_settings_gives_the_numbers_of_the_library(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    folder = save_shrunk(tmp_path / "model", model, seed=SEED)
    task = describe_model(locate_model(folder)).task
    expected = compute_reference(folder, task)
    name_code(folder, model)
    assert describe_model(locate_model(folder)).task is task
    found = compute_ours(folder, tmp_path / "prepared", task)
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * max(1, np.abs(expected).max()), rtol=0)


def test_models_without_a_class_are_compared_elsewhere() -> None:
    for name, place in WITHOUT_CLASS.items():
        assert name in MODELS
        assert (ROOT / place).is_file()
    assert all(is_comparable(MODELS[name]) for name in FEW)
