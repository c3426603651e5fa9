"""Sparse rows are SparseEncoder's, without their zeros, and NaN is never taken for one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.graph_session import GraphSession
from support.published import edit_json
from support.reference import load_reference
from support.task_models import SIDES, save_splade, save_task_model
from tasks.conftest import TEXTS, Open
from vecmill.architectures import build
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedTask
from vecmill.models import locate_model
from vecmill.requests import EmbedSparse
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.embeddings import SparseEmbedding

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "masked", "BertForMaskedLM")


@pytest.mark.parametrize("pooling_strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_sparse_rows_are_those_of_the_reference(
    masked: Path, tmp_path: Path, open_mill: Open, pooling_strategy: str, activation: str
) -> None:
    oracle = save_splade(
        tmp_path / "splade", masked, pooling_strategy=pooling_strategy, activation_function=activation
    )
    mill = open_mill(tmp_path / "splade")
    _assert_same_rows(mill.run(EmbedSparse(tuple(TEXTS))).embeddings, oracle)
    with pytest.raises(
        UnsupportedTask, match=r"gives sparse embeddings, and ranks .* by them; it cannot embed texts"
    ):
        mill.embed(["a text"])


def _assert_same_rows(rows: Sequence[SparseEmbedding], oracle: Any) -> None:
    expected = np.stack([oracle.encode([text], convert_to_sparse_tensor=False)[0].numpy() for text in TEXTS])
    found = np.zeros_like(expected)
    for index, row in enumerate(rows):
        assert (np.diff(row.columns) > 0).all()
        assert (row.values > 0).all()
        found[index, row.columns] = row.values
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert 0.01 < (expected > 0).mean() < 0.99


@pytest.mark.parametrize("pooling_strategy", ["max", "sum"])
def test_a_vocabulary_in_parts_gives_the_same_rows(
    masked: Path, tmp_path: Path, pooling_strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = save_splade(tmp_path / "splade", masked, pooling_strategy=pooling_strategy)
    monkeypatch.setattr(build, "VOCABULARY_COLUMNS", 100)
    description = describe_model(locate_model(tmp_path / "splade"))
    model = build_graph(description)
    names = [name for name in model.graph.initializers if name.startswith("embeddings.word_embeddings")]
    assert len(names) == 1 + -(-len(oracle.tokenizer) // 100)  # the table of the input, and the parts
    outputs = GraphSession(model).outputs(Batch.of(Tokenizer.load(description).encode(TEXTS)))
    ends = np.cumsum(outputs["counts"])[:-1]
    parts = zip(np.split(outputs["columns"], ends), np.split(outputs["rows"], ends), strict=True)
    _assert_same_rows([SparseEmbedding(columns, values) for columns, values in parts], oracle)


# What computing rows over a large vocabulary adds to a process's memory, in MB.
_MEASURE = """
import pathlib, resource, sys
import numpy as np
from vecmill.engines import load_engine
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, locate_model
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.batch import Batch, TokenSequence

description = describe_model(locate_model(sys.argv[1]), Task.SPARSE)
engine = load_engine(description, EnginePlan(), cores=1, cache_dir=pathlib.Path(sys.argv[2]))
engine.run(Batch.of([TokenSequence.of([7])]), width=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = np.random.default_rng(0).integers(5, 700, (32, 40))
engine.run(Batch.of([TokenSequence.of(row) for row in ids]), width=1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_a_large_vocabulary_needs_no_memory_for_the_logits_of_all_of_it(tmp_path: Path) -> None:
    vocabulary, texts, tokens = 100_000, 32, 40
    folder = save_task_model(tmp_path / "masked", "BertForMaskedLM", vocab_size=vocabulary)
    _change(folder, "cls.predictions.bias", slice(None), -9.0)  # rows of a few entries, as models have them
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(folder), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    all_logits_mb = vocabulary * texts * tokens * 4 / 2**20
    assert float(done.stdout) < 0.5 * all_logits_mb


def test_documents_are_ranked_by_the_dot_product(masked: Path, tmp_path: Path, open_mill: Open) -> None:
    save_splade(tmp_path / "splade", masked)
    edit_json(tmp_path / "splade/config_sentence_transformers.json", prompts=SIDES)
    oracle = load_reference(tmp_path / "splade", "SparseEncoder")
    query = "which of the names is it"
    expected = oracle.similarity(oracle.encode_query([query]), oracle.encode_document(TEXTS))[0].numpy()
    found = open_mill(tmp_path / "splade").rerank(query, TEXTS).scores
    # A product adds up hundreds of entries, each with its own rounding: 1e-4 of the largest.
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())
    assert np.ptp(expected) > 1


def test_a_text_of_zeros_alone_is_a_row_without_columns(
    tmp_path: Path, masked: Path, open_mill: Open
) -> None:
    mill = open_mill(_splade_with_bias(tmp_path, masked, -1e4))
    first, second = mill.run(EmbedSparse(("the name", "of the rose"))).embeddings
    assert len(first.columns) == len(first.values) == len(second.values) == 0


def test_what_is_not_a_number_stays_so_and_stays_with_its_text(tmp_path: Path, masked: Path) -> None:

    save_splade(tmp_path / "splade", masked)
    description = describe_model(locate_model(tmp_path / "splade"))
    tokenizer = Tokenizer.load(description)
    sequences = tokenizer.encode(["the only one so long", "of the is", "which one"])
    _change(tmp_path / "splade", "position_embeddings.weight", len(sequences[0]) - 1, np.nan)
    session = GraphSession(build_graph(description))
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        outputs = session.outputs(Batch.of([sequences[index] for index in order]))
        ends = np.cumsum(outputs["counts"])
        finite = [bool(np.isfinite(part).all()) for part in np.split(outputs["rows"], ends[:-1])]
        assert finite == [index != 0 for index in order]


def _splade_with_bias(tmp_path: Path, masked: Path, bias: float) -> Path:
    save_splade(tmp_path / "splade", masked)
    _change(tmp_path / "splade", "cls.predictions.bias", slice(None), bias)
    return tmp_path / "splade"


def _change(folder: Path, suffix: str, where: Any, value: float) -> None:
    import safetensors.numpy

    (path,) = folder.rglob("*.safetensors")
    tensors = {name: tensor.copy() for name, tensor in safetensors.numpy.load_file(path).items()}
    (name,) = [name for name in tensors if name.endswith(suffix)]
    tensors[name][where] = value
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
