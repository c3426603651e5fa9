"""The digest of an exported graph: its operators, and the values of its tensors.

Exporters write the same graph with its tensors inside or beside it, so the bytes of its files say less than
its values. Names of programs and comments are left out.
"""

import hashlib
from pathlib import Path

import onnx

from vecmill.errors import CorruptModel, one_line
from vecmill.graphs.exported import load_exported
from vecmill.graphs.external_data import find_tensors
from vecmill.models.description import ModelDescription

# All fields of a tensor that hold its values or their place, and comments.
_VALUES = (
    "data_location",
    "doc_string",
    "double_data",
    "external_data",
    "float_data",
    "int32_data",
    "int64_data",
    "raw_data",
    "string_data",
    "uint64_data",
)
_ORIGINS = ("doc_string", "domain", "metadata_props", "model_version", "producer_name", "producer_version")


def digest_exported(description: ModelDescription) -> str:
    """Return the digest of the exported graph of a model: SHA-256 in hexadecimal.

    Raises the errors of `graphs.exported.read_exported`.
    """
    path = description.weights_files[0]
    model = load_exported(description)
    digest = hashlib.sha256()
    for tensor in find_tensors(model):
        digest.update(_digest_values(path, tensor))
        for field in _VALUES:
            tensor.ClearField(field)
    for field in _ORIGINS:
        model.ClearField(field)
    digest.update(model.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _digest_values(path: Path, tensor: onnx.TensorProto) -> bytes:
    try:
        values = onnx.numpy_helper.to_array(tensor, str(path.parent))
        return hashlib.sha256(values.tobytes()).digest()
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{path}: the tensor {tensor.name!r} cannot be read: {one_line(error)}. Export the model again."
        ) from error
