"""Checks the references of an ONNX graph to tensors in other files.

Any tensor of a graph may be stored in another file: initialisers, sparse initialisers, attributes of nodes,
and all of these in nested graphs, functions and training graphs. A runtime reads the file that the tensor
names, so a graph from a stranger could name any file of this machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from vecmill.errors import CorruptModel, UnsupportedModel


def check_external_data(path: Path, model: onnx.ModelProto, files: Iterable[Path]) -> None:
    """Check every tensor of the graph `path` that is stored in another file.

    `files` are the weights files of the model, which are beside the graph and inside the model directory.
    Raises `UnsupportedModel` if a tensor is in any other file, and `CorruptModel` if a file ends before a
    tensor does.
    """
    sizes = {file.name: file.stat().st_size for file in files}
    for tensor in _find_tensors(model):
        if tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_tensor(path, tensor, sizes)


def _find_tensors(message: Any) -> Iterator[onnx.TensorProto]:
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
            yield from _find_tensors(part)


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
