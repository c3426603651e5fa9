"""What the inputs of a graph's matrices look like, over some texts.

The fp32 graph is run with the matrices' inputs as further outputs, as many at a time as fit into memory.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import onnxruntime

from vecmill.fidelity.sample import sample_texts
from vecmill.quantization.matrices import Matrix
from vecmill.tokens import Tokenizer
from vecmill.types import Batch, FloatArray, TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_MOST_BYTES = 1 << 29  # of sums that are held at once
_TEXTS_AT_ONCE = 4
# Not those that a model is checked with. Twice as many take twice as long and change no figure.
_TEXTS, _SEED = 64, 20_260_107
_MOST_TOKENS = 256


def calibration_sequences(description: "ModelDescription") -> list[TokenSequence]:
    """Texts of many lengths as the model reads them, shortest first; at least one."""
    texts = sample_texts(_TEXTS, seed=_SEED)
    sequences = Tokenizer.load(description).encode(texts, prompt=description.default_prompt)
    ordered = sorted((one for one in sequences if len(one)), key=len)
    # Behind a long prompt, all texts are long.
    return [one for one in ordered if len(one) <= _MOST_TOKENS] or ordered[:_TEXTS_AT_ONCE]


@dataclass(slots=True)
class InputStatistics:
    """Of the inputs of one matrix: the largest magnitude of each, and sums of x x' (inputs, inputs)."""

    largest: FloatArray
    products: FloatArray

    def add(self, rows: FloatArray) -> None:
        """Count `rows` (rows, inputs)."""
        np.maximum(self.largest, np.abs(rows).max(axis=0), out=self.largest)
        self.products += rows.T @ rows


def observe_inputs(
    plain: Path, matrices: Sequence[Matrix], sequences: Sequence[TokenSequence]
) -> Iterator[tuple[Matrix, InputStatistics]]:
    """Each matrix with what is known of its inputs. `plain` is the graph as it was written.

    `sequences` are the texts, longest last at best. Some matrices at a time: use one before the next.
    """
    batches = [
        Batch.of(sequences[start : start + _TEXTS_AT_ONCE])
        for start in range(0, len(sequences), _TEXTS_AT_ONCE)
    ]
    for group in _groups(matrices):
        yield from zip(group, _observe(plain, group, batches), strict=True)


def _observe(plain: Path, group: Sequence[Matrix], batches: Sequence[Batch]) -> list[InputStatistics]:
    found = [
        InputStatistics(np.zeros(matrix.inputs, np.float32), np.zeros((matrix.inputs,) * 2, np.float32))
        for matrix in group
    ]
    names = sorted({_name(source) for matrix in group for source in matrix.sources})
    session = _open(plain, names)
    inputs = [known.name for known in session.get_inputs()]
    for batch in batches:
        feed = {name: getattr(batch, name) for name in inputs}
        seen = dict(zip(names, session.run(names, feed), strict=True))
        for matrix, statistics in zip(group, found, strict=True):
            for source in matrix.sources:
                statistics.add(seen[_name(source)])
    return found


def _open(plain: Path, outputs: Sequence[str]) -> onnxruntime.InferenceSession:
    """The graph at `plain` with other outputs; whatever does not lead to them is left out."""
    model = ir.load(plain)
    values = ir.convenience.create_value_mapping(model.graph)
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in outputs)
    for value in model.graph.outputs:
        value.type = ir.TensorType(ir.DataType.FLOAT)
    with tempfile.NamedTemporaryFile(suffix=".onnx", dir=plain.parent, delete=False) as file:
        path = Path(file.name)
    try:
        ir.save(model, path)  # the weights stay where they are
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    finally:
        path.unlink()


def _groups(matrices: Sequence[Matrix]) -> Iterator[list[Matrix]]:
    group: list[Matrix] = []
    held = 0
    for matrix in matrices:
        needed = 4 * matrix.inputs**2
        if group and held + needed > _MOST_BYTES:
            yield group
            group, held = [], 0
        group.append(matrix)
        held += needed
    if group:
        yield group


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name
