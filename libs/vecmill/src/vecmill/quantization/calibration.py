"""Measures the inputs of a graph's matrices over calibration texts.

The fp32 graph is run with the matrices' inputs as outputs, as many at a time as fit into memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import onnxruntime

from vecmill.errors import InvalidRequest
from vecmill.graphs.external_data import SerializedGraph, map_weights
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.quantization.selection import Matrix
from vecmill.tokenization.prompts import Prompt, prompt_in_turn
from vecmill.tokenization.text_padding import TextPadding
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.positions import BatchShape, Positions, index_batch
from vecmill.values.sample_texts import sample_texts

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

_MOST_BYTES = 1 << 29  # of sums in memory at a time
_TEXTS_AT_ONCE = 4
# Not the texts of the precision check. Twice as many texts take twice as long and do not improve accuracy.
_TEXTS, _SEED = 64, 20_260_107
# Errors have long tails, so the worst text shows only among many.
_HELD_OUT_TEXTS, _HELD_OUT_SEED = 128, 20_261_123
_MOST_TOKENS = 256


def calibration_sequences(description: "ModelDescription") -> list[TokenSequence]:
    """Return the token sequences of texts of many lengths, shortest first; at least one."""
    return _draw_sequences(description, _TEXTS, _SEED)


def held_out_sequences(description: "ModelDescription") -> list[TokenSequence]:
    """Return sequences of other texts, to measure what quantisation loses; at least one."""
    return _draw_sequences(description, _HELD_OUT_TEXTS, _HELD_OUT_SEED)


def _draw_sequences(description: "ModelDescription", count: int, seed: int) -> list[TokenSequence]:
    texts = sample_texts(count, seed=seed)
    tokenizer = Tokenizer.load(description)
    padding = TextPadding.of(description, tokenizer.library)
    sequences = [
        found
        for number, text in enumerate(texts)
        for found in _encode(tokenizer, text, prompt_in_turn(description, number))
    ]
    if padding is not None:
        sequences = padding.pad(sequences)
    ordered = sorted(filter(len, sequences), key=len)
    # With a long prompt, all sequences are long.
    return [found for found in ordered if len(found) <= _MOST_TOKENS] or ordered[:_TEXTS_AT_ONCE]


def _encode(tokenizer: Tokenizer, text: str, prompt: Prompt) -> list[TokenSequence]:
    """Return the sequence of a text; none for a text without tokens, to which the model adds none."""
    try:
        return tokenizer.encode([text], prompt=prompt.text, adapter=prompt.adapter)
    except InvalidRequest:
        return []


@dataclass(slots=True)
class InputStatistics:
    """The largest magnitude of each input of a matrix (inputs,), and the sum of x x' (inputs, inputs).

    The sum is weighted by the effect of each row on the embedding of its text.
    """

    largest: FloatArray
    products: FloatArray

    def add(self, rows: FloatArray, lengths: IntArray) -> None:
        """Include `rows` (rows, inputs), one for each token of texts with `lengths` tokens.

        The embedding of a text of n tokens averages their errors, so the square of an error counts 1 / n^2.
        """
        np.maximum(self.largest, np.abs(rows).max(axis=0), out=self.largest)
        if len(rows) == lengths.sum():  # else the rows are texts
            rows = rows * np.repeat(1 / lengths, lengths).astype(np.float32)[:, None]
        self.products += rows.T @ rows


def observe_inputs(
    plain: SerializedGraph, matrices: Sequence[Matrix], sequences: Sequence[TokenSequence]
) -> Iterator[tuple[Matrix, InputStatistics]]:
    """Yield each matrix with the statistics of its inputs. `plain` is the fp32 graph.

    `sequences` should be sorted by length. Statistics take much memory, so use the statistics of a matrix
    before reading the next.
    """
    # A graph with attention in blocks takes a long text alone.
    size = 1 if len(sequences[-1]) > LONG_TEXT_TOKENS else _TEXTS_AT_ONCE
    batches = [Batch.of(sequences[start : start + size]) for start in range(0, len(sequences), size)]
    for group in _groups(matrices):
        yield from zip(group, _observe(plain, group, batches), strict=True)


def _observe(
    plain: SerializedGraph, group: Sequence[Matrix], batches: Sequence[Batch]
) -> list[InputStatistics]:
    found = [
        InputStatistics(np.zeros(matrix.inputs, np.float32), np.zeros((matrix.inputs,) * 2, np.float32))
        for matrix in group
    ]
    names = sorted({_name(source) for matrix in group for source in matrix.sources})
    session = _open(plain, names)
    inputs = [value.name for value in session.get_inputs()]
    for batch in batches:
        feed = _feed(batch, inputs)
        values = dict(zip(names, session.run(names, feed), strict=True))
        for matrix, statistics in zip(group, found, strict=True):
            for source in matrix.sources:
                statistics.add(values[_name(source)], batch.lengths)
    return found


def _feed(batch: Batch, inputs: Sequence[str]) -> dict[str, IntArray]:
    """Return the inputs of a graph with either layout, with a position for each token."""
    if "offsets" in inputs:
        return {name: getattr(batch, name) for name in inputs}
    positions = Positions.of(batch, shares_prefixes=False)
    return index_batch(batch, positions, BatchShape.of(batch, positions), inputs)


def _open(plain: SerializedGraph, outputs: Sequence[str]) -> onnxruntime.InferenceSession:
    """Open the graph with other outputs; the runtime drops the nodes that they do not need."""
    observed = plain.with_outputs(outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    map_weights(options, observed.files)
    return onnxruntime.InferenceSession(observed.graph, options, providers=["CPUExecutionProvider"])


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
