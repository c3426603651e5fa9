"""Sparse rows are SparseEncoder's, without their zeros, and NaN is never taken for one."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.graph_session import GraphSession
from support.task_models import save_task_model
from tasks.conftest import TEXTS, Open
from vecmill.errors import UnsupportedTask

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "masked", "BertForMaskedLM")


def save_splade(folder: Path, masked: Path, **pooling: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

        oracle = SparseEncoder(modules=[MLMTransformer(str(masked)), SpladePooling(**pooling)], device="cpu")
        oracle.save_pretrained(str(folder))
    return oracle


@pytest.mark.parametrize("pooling_strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_sparse_rows_are_those_of_the_reference(
    masked: Path, tmp_path: Path, open_mill: Open, pooling_strategy: str, activation: str
) -> None:
    oracle = save_splade(
        tmp_path / "splade", masked, pooling_strategy=pooling_strategy, activation_function=activation
    )
    mill = open_mill(tmp_path / "splade")
    expected = np.stack([oracle.encode([text], convert_to_sparse_tensor=False)[0].numpy() for text in TEXTS])
    found = np.zeros_like(expected)
    for index, row in enumerate(mill.embed_sparse(TEXTS).rows):
        assert (np.diff(row.columns) > 0).all()
        assert (row.values > 0).all()
        found[index, row.columns] = row.values
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert 0.01 < (expected > 0).mean() < 0.99
    with pytest.raises(UnsupportedTask, match="gives sparse embeddings; it cannot embed texts"):
        mill.embed(["a text"])


def test_a_text_of_zeros_alone_is_a_row_without_columns(
    tmp_path: Path, masked: Path, open_mill: Open
) -> None:
    mill = open_mill(_splade_with_bias(tmp_path, masked, -1e4))
    first, second = mill.embed_sparse(["the name", "of the rose"]).rows
    assert len(first.columns) == len(first.values) == len(second.values) == 0


def test_what_is_not_a_number_stays_so_and_stays_with_its_text(tmp_path: Path, masked: Path) -> None:
    from vecmill.graphs.build import build_graph
    from vecmill.models import describe_model, locate_model
    from vecmill.tokens import Tokenizer
    from vecmill.types import Batch

    save_splade(tmp_path / "splade", masked)
    description = describe_model(locate_model(tmp_path / "splade"))
    tokenizer = Tokenizer.load(description)
    sequences = tokenizer.encode(["the only one so long", "of the is", "which one"])
    _change(tmp_path / "splade", "position_embeddings.weight", len(sequences[0]) - 1, np.nan)
    session = GraphSession(build_graph(description), tmp_path)
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
