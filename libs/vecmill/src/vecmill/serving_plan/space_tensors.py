"""The parts of a space that are made of tensors, and of the code of models that bring their own.

Imports the ONNX libraries, for the graphs that tell which tensors are used.
"""

from collections.abc import Iterator

from vecmill.architectures.used_tensors import (
    list_adapter_tensors,
    list_file_tensors,
    list_stage_tensors,
    list_used_tensors,
)
from vecmill.graphs.exported_digest import digest_exported
from vecmill.models import ModelDescription
from vecmill.models.fingerprint import hash_file
from vecmill.models.space import SpacePart, to_canonical
from vecmill.models.tensor_digests import DigestedTensor, digest_tensors


def list_tensor_parts(description: ModelDescription, threads: int) -> Iterator[SpacePart]:
    """Yield the parts of the model's own vectors. Blocks: reads all tensors that are used.

    Raises the errors of `build_graph` or `read_exported`.
    """
    yield _digest_encoder(description, threads)
    if description.adapter is not None:
        tensors = _digest(list_adapter_tensors(description.adapter), threads)
        scaling = description.adapter.describe_scaling()
        yield SpacePart.of("adapter", [scaling, tensors], f"{len(tensors)} tensors")
    modules = [_digest(list_stage_tensors(stage), threads) for stage in description.stages]
    stages = zip(map(to_canonical, description.stages), modules, strict=True)
    names = ", ".join(type(stage).__name__ for stage in description.stages) or "none"
    yield SpacePart.of("modules", [list(pair) for pair in stages], names)
    if description.runs_code:
        code = {path.name: hash_file(path) for path in sorted(description.directory.glob("*.py"))}
        yield SpacePart.of("code", code, "the *.py of the directory")


def _digest_encoder(description: ModelDescription, threads: int) -> SpacePart:
    if description.exported_graph is not None:
        name = description.exported_graph.name
        return SpacePart.of("tensors", digest_exported(description), f"the exported graph {name}")
    tensors = _digest(list_used_tensors(description), threads)
    return SpacePart.of("tensors", tensors, f"{len(tensors)} tensors")


def digest_heads(description: ModelDescription, threads: int) -> Iterator[SpacePart]:
    """Yield the parts of outputs that a model gives beside its own. Raises the errors of `Weights.open`."""
    heads = description.token_heads
    if heads is None:
        return
    yield SpacePart.of(
        "sparse", [_digest(list_file_tensors(heads.weights_file), threads), heads.unweighted], "token weights"
    )
    yield SpacePart.of("vectors", _digest(list_file_tensors(heads.vectors_file), threads), "token vectors")


def _digest(tensors: list[DigestedTensor], threads: int) -> dict[str, str]:
    return digest_tensors(tensors, threads=threads) if tensors else {}
