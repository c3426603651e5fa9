"""Aligns stored weights to 64 bytes in their file.

ONNX Runtime 1.31 stores each weight, followed by its packed form. Only weights of more than 1 MiB begin at a
page; all other weights and packed forms follow each other without a gap. Its kernels read packed weights with
instructions that crash the process if an address is not a multiple of 64 bytes. So a head with one label may
crash after a table of odd size, such as the 1,025 distances of the large DeBERTa models.

This module copies each unaligned weight to an aligned offset at the end of the file and updates the graph.
The old bytes stay unused: a few kilobytes.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import onnx

# A cache line and the widest registers (AVX-512); no instruction needs a larger alignment.
ALIGNMENT_BYTES = 64
_PACKED = "prepacked_"


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


def stored_offsets(model: onnx.ModelProto) -> Iterator[int]:
    """Yield the offset of each weight of `model` in its external file, and of each packed form."""
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
