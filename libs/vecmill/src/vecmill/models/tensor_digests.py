"""Digests of the values of tensors, which do not depend on the files and types that hold them.

A tensor is digested as float32, row by row, in little-endian order: what every engine starts from. So equal
values have equal digests in safetensors and PyTorch files, in one file and in several, and in 16 bits.

Elements that stand in a file one after the other are read from it in chunks, without the interpreter lock, so
that other threads load the model meanwhile. SHA-256 takes about a second for 1.5 GB on one core with
instructions for it.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.errors import CorruptModel
from vecmill.models.weights import FilePlace, StoredTensor

_CHUNK_BYTES = 4 * 2**20
_LITTLE_ENDIAN = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class DigestedTensor:
    """A tensor to digest. `part` returns rows of it, for tensors that are not read from one place."""

    whole: StoredTensor
    part: Callable[[int, int], StoredTensor] | None = None


def digest_tensors(tensors: Sequence[DigestedTensor], *, threads: int = 1) -> dict[str, str]:
    """Return the digest of each tensor by its name: SHA-256 in hexadecimal. Blocks.

    Raises `CorruptModel` if a file cannot be read.
    """
    largest_first = sorted(tensors, key=lambda one: math.prod(one.whole.shape), reverse=True)
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="vecmill-digest") as pool:
        digests = pool.map(_digest, largest_first)
        return {one.whole.name: digest for one, digest in zip(largest_first, digests, strict=True)}


def _digest(tensor: DigestedTensor) -> str:
    digest = hashlib.sha256(repr(tuple(map(int, tensor.whole.shape))).encode())
    for chunk in _read_chunks(tensor):
        digest.update(chunk)
    return digest.hexdigest()


def _read_chunks(tensor: DigestedTensor) -> Iterator[memoryview]:
    whole = tensor.whole
    if whole.place is not None:
        yield from _read_place(whole.place, math.prod(whole.shape))
        return
    if tensor.part is None or not whole.shape:
        yield _as_bytes(whole.read())
        return
    rows = whole.shape[0]
    step = max(1, _CHUNK_BYTES // (4 * max(1, math.prod(whole.shape[1:]))))
    for start in range(0, rows, step):
        yield _as_bytes(tensor.part(start, min(start + step, rows)).read())


def _read_place(place: FilePlace, count: int) -> Iterator[memoryview]:
    """Yield `count` elements that stand in a file as float32."""
    size = 2 if place.has_16_bits else 4
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, count * size)))
    left = count * size
    try:
        with place.path.open("rb", buffering=0) as file:
            file.seek(place.offset)
            while left:
                found = _fill(file.readinto, buffer[: min(left, len(buffer))])
                left -= len(found)
                yield _widen(found, place.kind)
    except OSError as error:
        raise CorruptModel(f"{place.path} cannot be read: {error.strerror}.") from error
    except EOFError as error:
        raise CorruptModel(f"{place.path} became shorter while it was read.") from error


def _fill(read: Callable[[memoryview], int | None], buffer: memoryview) -> memoryview:
    filled = 0
    while filled < len(buffer):
        count = read(buffer[filled:])
        if not count:
            raise EOFError
        filled += count
    return buffer


def _widen(chunk: memoryview, kind: str) -> memoryview:
    """Return elements of the type `kind` as float32, little-endian."""
    if kind == "F32":
        return chunk
    if kind == "F16":
        return _as_bytes(np.frombuffer(chunk, "<f2").astype(np.float32))
    # The upper half of a float32. numpy converts its own types without the interpreter lock.
    return _as_bytes((np.frombuffer(chunk, "<u2").astype("<u4") << 16).view(np.float32))


def _as_bytes(values: npt.NDArray[np.float32]) -> memoryview:
    return np.ascontiguousarray(values, _LITTLE_ENDIAN).data.cast("B")
