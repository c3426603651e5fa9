"""The data of an ONNX graph in other files: checks of a stranger's graph, and the weights of a prepared one.

Any tensor of a graph may be stored in another file: initialisers, sparse initialisers, attributes of nodes,
and all of these in nested graphs, functions and training graphs. A runtime reads the file that the tensor
names, so a graph from a stranger could name any file of this machine. `check_external_data` refuses it.

ONNX Runtime 1.31 stores each weight, followed by its packed form. Only weights of more than 1 MiB begin at a
page; all other weights and packed forms follow each other without a gap. Its kernels read packed weights with
instructions that crash the process if an address is not a multiple of 64 bytes. So a head with one label may
crash after a table of odd size, such as the 1,025 distances of the large DeBERTa models.

`align_weights` copies each unaligned weight to an aligned offset at the end of the file and updates the
graph. The old bytes stay unused: a few kilobytes.

ONNX Runtime 1.27, the newest with MIGraphX, writes some initialisers of a branch twice, and then refuses to
load the graph, because their names are not unique. `drop_repeated_initializers` keeps one of each.

`serialize_graph` leaves the weights of a graph that vecmill builds in the files of the model, from which the
runtime maps them. Only weights in another form, such as joined matrices, are written.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.ops import PLACE
from vecmill.hardware.system_calls import reserve_disk


def check_external_data(path: Path, model: onnx.ModelProto, files: Iterable[Path]) -> None:
    """Check every tensor of the graph `path` that is stored in another file.

    `files` are the weights files of the model, which are beside the graph and inside the model directory.
    Raises `UnsupportedModel` if a tensor is in any other file, and `CorruptModel` if a file ends before a
    tensor does.
    """
    sizes = {file.name: file.stat().st_size for file in files}
    for tensor in find_tensors(model):
        if tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_tensor(path, tensor, sizes)


def find_tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield all tensors in a message of ONNX, at any depth."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    # By the definition of the message, so that no kind of tensor is forgotten. Contents are not read.
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None:
            continue
        value = getattr(message, field.name)
        is_single = hasattr(value, "DESCRIPTOR")
        if is_single and not message.HasField(field.name):
            continue
        for part in (value,) if is_single else value:
            yield from find_tensors(part)


def _check_tensor(path: Path, tensor: onnx.TensorProto, sizes: Mapping[str, int]) -> None:
    locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
    # Readers differ in which of several locations they use.
    location = locations[0] if len(locations) == 1 else None
    if location is None or location not in sizes:
        shown = " and ".join(repr(name[:100]) for name in locations) or "no file"
        raise UnsupportedModel(
            f"{path}: the weights of {tensor.name[:100]!r} are in {shown}, which is missing or not "
            f"named after the graph. Store them beside the graph as {path.name}_data."
        )
    offset, length = (_read_count(path, tensor, key) for key in ("offset", "length"))
    if offset + length > sizes[location]:
        raise CorruptModel(
            f"{path}: the weights of {tensor.name[:100]!r} end at byte {offset + length} of {location!r}, "
            f"which has {sizes[location]} bytes. Download the model again."
        )


def _read_count(path: Path, tensor: onnx.TensorProto, key: str) -> int:
    """Return the offset or the length of a tensor, 0 if it has none. Raises `CorruptModel`."""
    found = [entry.value for entry in tensor.external_data if entry.key == key]
    if len(found) > 1 or not all(
        value.isascii() and value.isdecimal() and len(value) < 20 for value in found
    ):
        raise CorruptModel(
            f"{path}: the {key} of the weights of {tensor.name[:100]!r} is not a whole number. Download the "
            "model again."
        )
    return int(found[0]) if found else 0


# A cache line and the widest registers (AVX-512); no instruction needs a larger alignment.
ALIGNMENT_BYTES = 64
PACKED_PREFIX = "prepacked_"  # of the keys of packed forms

# Smaller tensors stay in the graph itself, in memory.
_SMALL_BYTES = 256

# The names of files of weights in a graph.
_PUBLISHED = "published:"
_MADE = "made"


def align_weights(graph: Path, weights: Path) -> None:
    """Align every weight of `graph` in the file `weights` to `ALIGNMENT_BYTES`.

    ONNX Runtime wrote both files, packed weights included. They are changed in place.
    """
    model = onnx.load(graph, load_external_data=False)
    if all(offset % ALIGNMENT_BYTES == 0 for offset in stored_offsets(model)):
        return
    with weights.open("r+b") as file:
        for tensor in model.graph.initializer:
            if tensor.external_data:
                _align_tensor(tensor, file)
    graph.write_bytes(model.SerializeToString())


def drop_repeated_initializers(graph: Path) -> None:
    """Remove initialisers that ONNX Runtime wrote twice into the same graph or branch. Changes the file."""
    model = onnx.load(graph, load_external_data=False)
    removed = sum(_drop_repeated(part) for part in _find_graphs(model.graph))
    if removed:
        graph.write_bytes(model.SerializeToString())


def _find_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and its branches, at any depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for branch in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _find_graphs(branch)


def _drop_repeated(graph: onnx.GraphProto) -> int:
    """Remove each initialiser of `graph` whose name an earlier one has. Return the number of them."""
    names = [tensor.name for tensor in graph.initializer]
    first = {name: index for index, name in reversed([*enumerate(names)])}
    repeated = [index for index, name in enumerate(names) if first[name] != index]
    for index in reversed(repeated):
        del graph.initializer[index]
    return len(repeated)


def stored_offsets(model: onnx.ModelProto) -> Iterator[int]:
    """Yield the offset of each weight of `model` in its external file, and of each packed form."""
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                yield int(entry.value)
            elif entry.key.startswith(PACKED_PREFIX):
                yield from (offset for offset, _, _ in split_packed(entry.value)[1])


@dataclass(frozen=True, slots=True)
class SerializedGraph:
    """A graph, and the contents of the files that hold its weights, by their names in the graph.

    `published` are those of these files that belong to the model.
    """

    graph: bytes
    files: Mapping[str, memoryview]
    published: tuple[Path, ...]

    def with_outputs(self, names: Sequence[str]) -> "SerializedGraph":
        """Return the same graph with the values `names`, float32, as its outputs."""
        model = ir.from_proto(onnx.ModelProto.FromString(self.graph))
        values = ir.convenience.create_value_mapping(model.graph)
        model.graph.outputs.clear()
        model.graph.outputs.extend(values[name] for name in names)
        for value in model.graph.outputs:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        return replace(self, graph=ir.to_proto(model).SerializeToString())


def serialize_graph(model: ir.Model, made: Path | None = None) -> SerializedGraph:
    """Return the graph with its weights in files, which are mapped.

    A weight that a file of the model holds as the graph needs it stays there. The others are written one
    after the other to the file `made`, or to memory if there is none. `model` then refers to these files.
    """
    made_weights: list[ir.Value] = []
    published: dict[Path, memoryview] = {}
    for value in _large_weights(model):
        tensor = value.const_value
        assert tensor is not None
        place = tensor.meta.get(PLACE)
        if place is None:
            made_weights.append(value)
            continue
        if place.path not in published:
            published[place.path] = _map_file(place.path)
        _refer(value, _name_published(place.path), place.offset)
    files = {_name_published(path): contents for path, contents in published.items()}
    if made_weights:
        files[_MADE] = _write_weights(made_weights, made)
    return SerializedGraph(ir.to_proto(model).SerializeToString(), files, tuple(published))


def map_weights(options: Any, files: Mapping[str, memoryview]) -> None:
    """Let a session with these `options` of ONNX Runtime read the weights where they are, without a copy."""
    options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")
    sizes = [contents.nbytes for contents in files.values()]
    options.add_external_initializers_from_files_in_memory(list(files), list(files.values()), sizes)


def _name_published(path: Path) -> str:
    return f"{_PUBLISHED}{path}"


def _large_weights(model: ir.Model) -> list[ir.Value]:
    return [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > _SMALL_BYTES
    ]


def _map_file(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _write_weights(values: Sequence[ir.Value], made: Path | None) -> memoryview:
    """Write the weights of `values` one after the other, and refer to them. Return what was written."""
    tensors = [value.const_value for value in values if value.const_value is not None]
    sizes = [tensor.nbytes + -tensor.nbytes % ALIGNMENT_BYTES for tensor in tensors]
    contents = _make_room(made, sum(sizes))
    written, offset = np.frombuffer(contents, np.uint8), 0
    for value, tensor, size in zip(values, tensors, sizes, strict=True):
        written[offset : offset + tensor.nbytes] = (
            np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
        )
        _refer(value, _MADE, offset)
        offset += size
    return contents


def _make_room(made: Path | None, size: int) -> memoryview:
    """Return a new file of `size` bytes, mapped, or as much memory. Raises `OSError`."""
    if made is None:
        return memoryview(mmap.mmap(-1, size))
    with made.open("w+b") as file:
        # A full disk is an error here. In the mapping it would end the process.
        reserve_disk(file.fileno(), size)
        return memoryview(mmap.mmap(file.fileno(), size))


def _refer(value: ir.Value, file: str, offset: int) -> None:
    """Let `value` refer to its weight in `file`."""
    tensor = value.const_value
    assert tensor is not None
    shape = ir.Shape(tensor.shape.numpy())
    value.const_value = ir.ExternalTensor(
        file, offset, tensor.nbytes, tensor.dtype, shape=shape, name=str(value.name)
    )


def _align_tensor(tensor: onnx.TensorProto, file: BinaryIO) -> None:
    length = next(int(entry.value) for entry in tensor.external_data if entry.key == "length")
    for entry in tensor.external_data:
        if entry.key == "offset":
            entry.value = str(_align_piece(file, int(entry.value), length))
        elif entry.key.startswith(PACKED_PREFIX):
            kernel, pieces = split_packed(entry.value)
            moved = [f"{_align_piece(file, offset, size)};{size};{rest}" for offset, size, rest in pieces]
            entry.value = "|".join([kernel, *moved])


def split_packed(value: str) -> tuple[str, list[tuple[int, int, str]]]:
    """Parse `kernel|offset;length;checksum|...` to the kernel and the pieces."""
    kernel, *pieces = value.split("|")
    fields = (piece.split(";") for piece in pieces)
    return kernel, [(int(offset), int(length), checksum) for offset, length, checksum in fields]


def _align_piece(file: BinaryIO, offset: int, length: int) -> int:
    """Return the aligned offset of the piece, which is copied there if necessary."""
    if offset % ALIGNMENT_BYTES == 0:
        return offset
    file.seek(offset)
    piece = file.read(length)
    end = file.seek(0, os.SEEK_END)
    start = file.seek(end + -end % ALIGNMENT_BYTES)
    file.write(piece)
    return start
