"""Tensors of exported graphs in other files: only files of the model are read, wherever a tensor is."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.small_exports import WIDTH, save_small_export, small_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.external_data import check_external_data
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

DATA = "model.onnx_data"


def external(**entries: object) -> TensorProto:
    """A tensor of one row in the file that the entries name."""
    tensor = TensorProto(name="stored", data_type=TensorProto.FLOAT, dims=[WIDTH])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "/etc/passwd", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def nested(tensor: TensorProto) -> onnx.GraphProto:
    constant = helper.make_node("Constant", [], ["value"], value=tensor)
    output = helper.make_tensor_value_info("value", TensorProto.FLOAT, [WIDTH])
    return helper.make_graph([constant], "nested", [], [output])


def in_an_initialiser(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)


def in_a_sparse_initialiser(model: onnx.ModelProto, tensor: TensorProto) -> None:
    indices = numpy_helper.from_array(np.array([1], np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [WIDTH]))


def in_an_attribute(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["constant"], value=tensor))


def in_a_list_of_tensors(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["constant"], values=[tensor]))


def in_a_branch_of_a_branch(model: onnx.ModelProto, tensor: TensorProto) -> None:
    inner = nested(tensor)
    inner.node.append(helper.make_node("If", ["value"], ["other"], then_branch=nested(tensor)))
    model.graph.node.append(helper.make_node("If", ["attention_mask"], ["chosen"], else_branch=inner))


def in_a_function(model: onnx.ModelProto, tensor: TensorProto) -> None:
    node = helper.make_node("Constant", [], ["y"], value=tensor)
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "F", [], ["y"], [node], opsets))


def in_a_training_graph(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.training_info.add().algorithm.CopyFrom(nested(tensor))


Place = Callable[[onnx.ModelProto, TensorProto], None]
PLACES: list[Place] = [
    in_an_initialiser,
    in_a_sparse_initialiser,
    in_an_attribute,
    in_a_list_of_tensors,
    in_a_branch_of_a_branch,
    in_a_function,
    in_a_training_graph,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_files_outside_the_model_are_refused(tmp_path: Path, place: Place) -> None:
    model = small_graph()
    place(model, external())
    path = save_small_export(tmp_path / "model", model) / "model.onnx"
    with pytest.raises(UnsupportedModel, match=r"model\.onnx: the weights of '\w+' are in '/etc/passwd'"):
        load(path.parent)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_files_beside_the_graph_are_read(tmp_path: Path, place: Place) -> None:
    model = small_graph()
    place(model, external(location=DATA, offset=0, length=WIDTH * 4))
    data = tmp_path / DATA
    data.write_bytes(bytes(WIDTH * 4))
    check_external_data(tmp_path / "model.onnx", model, [tmp_path / DATA])


def load(directory: Path) -> OnnxEngine:
    description = describe_model(locate_model(directory))
    return OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=directory.parent / "cache")


LOCATIONS = [
    "../model.onnx_data",
    "./model.onnx_data",
    "sub/model.onnx_data",
    "..",
    "",
    "/proc/self/environ",
    "..\\model.onnx_data",
    "model.onnx_data\0",
    "*/_ORT_MEM_ADDR_/*",
    "tokenizer.json",
]


@pytest.mark.parametrize("location", LOCATIONS)
def test_only_the_bare_name_of_a_file_beside_the_graph_is_a_location(tmp_path: Path, location: str) -> None:
    (tmp_path / DATA).write_bytes(bytes(1_000))
    model = small_graph()
    in_an_attribute(model, external(location=location))
    with pytest.raises(UnsupportedModel, match="is missing or not named after the graph"):
        check_external_data(tmp_path / "model.onnx", model, [tmp_path / DATA])


def test_a_tensor_has_one_location(tmp_path: Path) -> None:
    (tmp_path / DATA).write_bytes(bytes(1_000))
    model = small_graph()
    tensor = external(location=DATA)
    tensor.external_data.add(key="location", value="/etc/passwd")
    in_an_initialiser(model, tensor)
    with pytest.raises(UnsupportedModel, match=r"are in 'model\.onnx_data' and '/etc/passwd'"):
        check_external_data(tmp_path / "model.onnx", model, [tmp_path / DATA])
    del tensor.external_data[:]
    model = small_graph()
    in_an_initialiser(model, tensor)
    with pytest.raises(UnsupportedModel, match="are in no file"):
        check_external_data(tmp_path / "model.onnx", model, [tmp_path / DATA])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 990, "length": 20}, "end at byte 1010 of 'model.onnx_data', which has 1000 bytes"),
        ({"offset": 2_000}, "end at byte 2000"),
        ({"offset": -1}, "the offset of the weights of 'stored' is not a whole number"),
        ({"length": "1e9"}, "the length of the weights of 'stored' is not a whole number"),
        ({"length": "9" * 30}, "the length"),
    ],
)
def test_a_tensor_lies_within_its_file(tmp_path: Path, entries: dict[str, object], message: str) -> None:
    (tmp_path / DATA).write_bytes(bytes(1_000))
    model = small_graph()
    in_an_attribute(model, external(**{"location": DATA, **entries}))
    with pytest.raises(CorruptModel, match=message):
        check_external_data(tmp_path / "model.onnx", model, [tmp_path / DATA])


@pytest.mark.parametrize("is_cache", [True, False])
def test_links_lead_only_to_the_blobs_of_the_same_repository(tmp_path: Path, is_cache: bool) -> None:
    """A hub's cache has links to the contents of files; other links out of the directory are refused."""
    export = save_small_export(tmp_path / "export")
    model = onnx.load(export / "model.onnx")
    (export / "model.onnx").unlink()
    onnx.save(model, export / "model.onnx", save_as_external_data=True, location=DATA, size_threshold=0)
    repository = tmp_path / "models--owner--name"
    blobs = repository / "blobs" if is_cache else tmp_path / "models--owner--other" / "blobs"
    snapshot = repository / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    for number, path in enumerate(path for path in sorted(export.rglob("*")) if path.is_file()):
        link = snapshot / path.relative_to(export)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.rename(blobs / str(number)))
    if not is_cache:
        with pytest.raises(CorruptModel, match="leads out of the model directory"):
            load(snapshot)
        return
    engine = load(snapshot)
    assert engine.run(Batch.of([TokenSequence.of([1, 2, 3])]), width=1).values.shape == (1, WIDTH)
    engine.close()


def test_a_link_to_a_device_is_no_file(tmp_path: Path) -> None:
    export = save_small_export(tmp_path / "model")
    os.symlink("/dev/zero", export / DATA)
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        describe_model(locate_model(export))
