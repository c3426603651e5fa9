"""A built graph holds nothing but what the model says, and reads weights only when written."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.graph_session import GraphSession
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel
from vecmill.graphs.finish import write_graph
from vecmill.graphs.ops import Ops
from vecmill.models import locate_model
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence


def test_inputs_and_output_are_those_of_a_batch(tmp_path: Path) -> None:
    model = build_graph(describe_model(locate_model(save_tiny_bert(tmp_path / "model"))))
    assert [value.name for value in model.graph.inputs] == [
        "token_ids",
        "token_type_ids",
        "offsets",
        "prompt_lengths",
    ]
    assert [value.name for value in model.graph.outputs] == ["rows", "token_rows"]


def test_weights_are_read_when_the_graph_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Weights._read

    def read_and_note(self: Weights, name: str) -> FloatArray:
        read.append(name)
        return original(self, name)

    monkeypatch.setattr(Weights, "_read", read_and_note)
    directory = save_tiny_bert(tmp_path / "model")
    model = build_graph(describe_model(locate_model(directory)))
    assert read == []
    write_graph(model, tmp_path / "graph.onnx")
    stored = safetensors.numpy.load_file(directory / "model.safetensors")
    assert set(read) == set(stored)
    assert (tmp_path / "graph.onnx").stat().st_size < sum(tensor.nbytes for tensor in stored.values())


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, prefix: str) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert(prefix=prefix))
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    name = f"{prefix}encoder.layer.0.attention.self.key.weight"
    tensors[name] = tensors[name][:, :5].copy()
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    with pytest.raises(
        CorruptModel, match=r"key\.weight' has shape \[32, 5\], config\.json asks for \[32, 32\]"
    ):
        build_graph(describe_model(locate_model(directory)))


def test_token_types_matter(tmp_path: Path) -> None:
    session = GraphSession(build_graph(describe_model(locate_model(save_tiny_bert(tmp_path / "model")))))
    first, second = (TokenSequence.of([2, 9, 3], [kind] * 3) for kind in (0, 1))
    one, other = session.run(Batch.of([first, second])).values
    assert np.abs(one - other).max() > 1e-3


def test_operators_are_written_with_capitals() -> None:
    with pytest.raises(AttributeError, match="gemm"):
        Ops().gemm()  # a slip, not an operator
