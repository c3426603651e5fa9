"""Lets the prepared graph of an adapter use the weights of its base, instead of a copy of them.

    <prepared base>/model.weights
    <prepared adapter>/
        model.onnx       names base.weights for tensors that equal those of the base, else model.weights
        model.weights    the tensors that the adapter changes, plain and packed
        base.weights     a hard link to model.weights of the base

Both names are one file, which the kernel keeps in memory once, for all sessions of all models and processes
that map it. A tensor is shared only if its bytes are equal, and those of its packed form. So a graph may
differ from that of the base in any way. A runtime refuses files outside the folder of a graph, and follows
no symbolic link there; a hard link is a file of the folder. It keeps the weights if the base's folder is
removed.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx

from vecmill.graphs.external_data import ALIGNMENT_BYTES, PACKED_PREFIX, split_packed

BASE_WEIGHTS = "base.weights"

_CHUNK_BYTES = 8 * 2**20  # compared at a time


@dataclass(frozen=True, slots=True)
class _Graph:
    """A prepared graph, its tensors with external data, and the content of its only weights file."""

    model: onnx.ModelProto
    tensors: dict[str, onnx.TensorProto]
    weights: Path
    content: mmap.mmap


def share_weights(graph: Path, base: Path) -> int:
    """Make the prepared graph `graph` use the weights of the prepared graph `base`. Return the shared bytes.

    Both graphs have one weights file each, in their folders. Both files of `graph` are written anew. If the
    file system has no hard links, or the folders are on different ones, nothing is shared.
    """
    with _open(graph) as own, _open(base) as other:
        if own is None or other is None:
            return 0
        shared = {
            name
            for name, tensor in own.tensors.items()
            if name in other.tensors and _are_equal(own, tensor, other, other.tensors[name])
        }
        if not shared:
            return 0
        try:
            os.link(other.weights, graph.parent / BASE_WEIGHTS)
        except OSError:
            return 0
        shortened = own.weights.with_name(f"{own.weights.name}.shortened")
        _write_rest(own, shared, shortened)
        for name in shared:
            _refer_to(own.tensors[name], other.tensors[name], BASE_WEIGHTS)
        shortened.replace(own.weights)
        graph.write_bytes(own.model.SerializeToString())
        return sum(_field(own.tensors[name], "length") for name in shared)


@contextlib.contextmanager
def _open(graph: Path) -> Iterator[_Graph | None]:
    """Open the graph and map its weights file; `None` if it does not have exactly one."""
    model = onnx.load(graph, load_external_data=False)
    tensors = {one.name: one for one in model.graph.initializer if one.external_data}
    locations = {
        entry.value
        for tensor in tensors.values()
        for entry in tensor.external_data
        if entry.key == "location"
    }
    if len(locations) != 1:
        yield None
        return
    weights = graph.parent / locations.pop()
    with weights.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield _Graph(model, tensors, weights, content)


def _are_equal(one: _Graph, tensor: onnx.TensorProto, other: _Graph, stored: onnx.TensorProto) -> bool:
    """Return whether two tensors have the same type, shape and bytes, also in their packed forms."""
    if (tensor.data_type, list(tensor.dims)) != (stored.data_type, list(stored.dims)):
        return False
    mine, others = _pieces(tensor), _pieces(stored)
    if [(key, length) for key, _, length in mine] != [(key, length) for key, _, length in others]:
        return False
    return all(
        one.content[start + done : start + min(done + _CHUNK_BYTES, length)]
        == other.content[begin + done : begin + min(done + _CHUNK_BYTES, length)]
        for (_, start, length), (_, begin, _) in zip(mine, others, strict=True)
        for done in range(0, length, _CHUNK_BYTES)
    )


def _pieces(tensor: onnx.TensorProto) -> list[tuple[str, int, int]]:
    """Return the name, the offset and the length of the plain form of a tensor, and of its packed forms."""
    found = [("", _field(tensor, "offset"), _field(tensor, "length"))]
    for entry in tensor.external_data:
        if entry.key.startswith(PACKED_PREFIX):
            kernel, pieces = split_packed(entry.value)
            found += [(f"{entry.key} {kernel}", offset, length) for offset, length, _ in pieces]
    return found


def _write_rest(graph: _Graph, shared: set[str], path: Path) -> None:
    """Write all tensors of `graph` but the `shared` ones to `path`, aligned, and note where they are."""
    with path.open("wb") as file, memoryview(graph.content) as content:
        for name, tensor in graph.tensors.items():
            if name in shared:
                continue
            for entry in tensor.external_data:
                if entry.key == "offset":
                    piece = content[int(entry.value) :][: _field(tensor, "length")]
                    entry.value = str(_append(piece, file))
                elif entry.key.startswith(PACKED_PREFIX):
                    kernel, pieces = split_packed(entry.value)
                    moved = [
                        f"{_append(content[offset : offset + length], file)};{length};{rest}"
                        for offset, length, rest in pieces
                    ]
                    entry.value = "|".join([kernel, *moved])
        if not file.tell():
            file.write(bytes(ALIGNMENT_BYTES))  # an empty file cannot be mapped


def _append(piece: memoryview, file: BinaryIO) -> int:
    """Write a piece at the next aligned offset, and return the offset."""
    end = file.tell()
    start = file.seek(end + -end % ALIGNMENT_BYTES)
    file.write(piece)
    return start


def _refer_to(tensor: onnx.TensorProto, stored: onnx.TensorProto, location: str) -> None:
    """Let `tensor` have the data of `stored`, which is in the file `location`."""
    del tensor.external_data[:]
    for entry in stored.external_data:
        tensor.external_data.add(key=entry.key, value=location if entry.key == "location" else entry.value)


def _field(tensor: onnx.TensorProto, key: str) -> int:
    return next(int(entry.value) for entry in tensor.external_data if entry.key == key)
