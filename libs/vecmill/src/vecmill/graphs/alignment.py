"""Where stored weights lie in their file.

ONNX Runtime 1.31 stores each weight, and behind it what it has packed of it. Only weights of more than 1 MiB
begin at a page; all others, and what is packed of them, follow each other without a gap. Its kernels however
read packed weights by instructions that end the process where an address is no multiple of 64 bytes. So
a head with one label runs or crashes by what happens to lie before it: a table of 1,025 distances, say, as
the large DeBERTa models have.

Here whatever lies badly is copied to the end of the file, to a place that is good, and the graph told.
Its former place stays, unused: a few kilobytes.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import onnx

# A cache line; the widest registers (AVX-512) are as wide, and no instruction asks for more.
ALIGNMENT_BYTES = 64
_PACKED = "prepacked_"


def align_weights(graph: Path, weights: Path) -> None:
    """Let everything that `graph` has in the file `weights` begin at a multiple of `ALIGNMENT_BYTES`.

    Both are as ONNX Runtime wrote them, packed weights included, and are changed in place.
    """
    model = onnx.load(graph, load_external_data=False)
    if all(offset % ALIGNMENT_BYTES == 0 for offset in stored_offsets(model)):
        return
    with weights.open("r+b") as file:
        for tensor in model.graph.initializer:
            if tensor.external_data:
                _align_tensor(tensor, file)
    graph.write_bytes(model.SerializeToString())


def stored_offsets(model: onnx.ModelProto) -> Iterator[int]:
    """Where each weight of `model` that is in another file begins there, and each packing of one."""
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                yield int(entry.value)
            elif entry.key.startswith(_PACKED):
                yield from (offset for offset, _, _ in _split_packed(entry.value)[1])


def _align_tensor(tensor: onnx.TensorProto, file: BinaryIO) -> None:
    length = next(int(entry.value) for entry in tensor.external_data if entry.key == "length")
    for entry in tensor.external_data:
        if entry.key == "offset":
            entry.value = str(_align_piece(file, int(entry.value), length))
        elif entry.key.startswith(_PACKED):
            kernel, pieces = _split_packed(entry.value)
            moved = [f"{_align_piece(file, offset, size)};{size};{rest}" for offset, size, rest in pieces]
            entry.value = "|".join([kernel, *moved])


def _split_packed(value: str) -> tuple[str, list[tuple[int, int, str]]]:
    """Of `kernel|offset;length;checksum|...`, the kernel and the pieces."""
    kernel, *pieces = value.split("|")
    fields = (piece.split(";") for piece in pieces)
    return kernel, [(int(offset), int(length), checksum) for offset, length, checksum in fields]


def _align_piece(file: BinaryIO, offset: int, length: int) -> int:
    """Where the bytes from `offset` on are now."""
    if offset % ALIGNMENT_BYTES == 0:
        return offset
    file.seek(offset)
    piece = file.read(length)
    end = file.seek(0, os.SEEK_END)
    start = file.seek(end + -end % ALIGNMENT_BYTES)
    file.write(piece)
    return start
