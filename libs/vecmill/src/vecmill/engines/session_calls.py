"""Calls of ONNX Runtime sessions: conversion of a batch to session inputs, and of outputs to embeddings.

Callers pass the sessions. The outputs have the names of `architectures.build.build_graph`, and padding texts
are removed from the outputs.

Graphs that another program exported are prepared here too. Beside the optimised graph and its weights, the
prepared folder (`engines.prepared`) holds:

    exported.json     inputs and outputs of the graph, so that later starts need not parse the graph
    stages.onnx       the graph from hidden states to embeddings, if the exported graph lacks these stages
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from vecmill.architectures.towers import PictureTowerConfig, join_patches
from vecmill.engines.buckets import pad_texts, select_texts
from vecmill.models.config_fields import read_token_id
from vecmill.models.exported import ExportedGraph
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import (
    CombinedEmbedding,
    Embedding,
    Embeddings,
    Output,
    OutputShape,
    SingleEmbedding,
    SparseEmbedding,
    UnitEmbedding,
)
from vecmill.values.engine_plan import EngineInfo, Precision
from vecmill.values.positions import BatchShape, Positions, index_batch, refuse_unknown_tokens
from vecmill.vectors import dense, scale_to_unit, stack_embeddings

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

ModelCall = Callable[[Batch], list[Any]]
"""Computes the outputs of a model for a batch. Raises any exception of the runtime."""

LayOut = Callable[[Batch], Mapping[str, npt.NDArray[Any]]]
"""Makes inputs of an exported graph by name."""

# Shapes are rounded up to these multiples if a provider compiles for each new shape.
_ROUND_TOKENS, _ROUND_TEXTS, _ROUND_LONGEST = 256, 8, 16


GRAPH_FILE = "exported.json"
STAGES_FILE = "stages.onnx"


class Session(Protocol):
    """The methods of `onnxruntime.InferenceSession` that the calls use."""

    def get_inputs(self) -> list[Any]:
        """Return the inputs, each with an attribute `name`."""
        ...

    def get_outputs(self) -> list[Any]:
        """Return the outputs, each with an attribute `name`."""
        ...

    def run(self, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        """Compute the outputs with these `names`, by default all outputs."""
        ...


class CallPool:
    """Calls with equal sessions. A caller gets a session that no other caller uses, as long as there is one.

    The session that was used last comes first, because caches may still have its memory. The session of a
    call that hangs is used again only if there is no other.
    """

    def __init__(self, calls: Sequence[ModelCall]) -> None:
        """`calls` has at least one call."""
        self._calls = itertools.cycle(calls)
        self._free = list(calls)

    def __call__(self, batch: Batch) -> list[Any]:
        """Compute the outputs for `batch`."""
        try:
            call = self._free.pop()  # one step for the interpreter, so no two threads get the same
        except IndexError:
            return next(self._calls)(batch)
        try:
            return call(batch)
        finally:
            self._free.append(call)


class OutputNames:
    """The names of the outputs of a graph: those of the usual output, and those of others."""

    def __init__(self, names: Sequence[str]) -> None:
        others = [output for output in Output if output is not Output.USUAL and output in names]
        self._names = {Output.USUAL: [name for name in names if name not in others]}
        self._names |= {output: [str(output)] for output in others}

    def of(self, batch: Batch) -> list[str]:
        """Return the names of the outputs for `batch`. Raises `ValueError` if the graph lacks one."""
        missing = [output for output in batch.outputs if output not in self._names]
        if missing:
            raise ValueError(f"the graph has no output {', '.join(missing)}")
        return [name for output in batch.outputs for name in self._names[output]]


class GraphCall:
    """The session of a graph, and the names of the graph's inputs and outputs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs = [found.name for found in session.get_inputs()]
        self._outputs = OutputNames([found.name for found in session.get_outputs()])


class RaggedCall(GraphCall):
    """A call of a graph with a `RaggedLayout`, whose inputs are the arrays of a batch.

    With `shares_prefixes` the graph has an `IndexedLayout`, and texts that begin with the same tokens share
    positions.
    """

    def __init__(self, session: Session, *, shares_prefixes: bool = False) -> None:
        super().__init__(session)
        self._shares_prefixes = shares_prefixes

    def __call__(self, batch: Batch) -> list[Any]:
        """Compute the outputs for `batch`."""
        return self._session.run(self._outputs.of(batch), self._feed(batch))

    def _feed(self, batch: Batch) -> dict[str, Any]:
        if not self._shares_prefixes:
            return {name: getattr(batch, name) for name in self._inputs}
        positions = Positions.of(batch, shares_prefixes=True)
        return index_batch(batch, positions, BatchShape.of(batch, positions), self._inputs)


class IndexedCall(GraphCall):
    """A call of a graph with an `IndexedLayout`, for providers with slow indices or compiled shapes.

    With `compiles`, sizes are rounded up, so that the provider sees few shapes. With `shares_prefixes`, texts
    that begin with the same tokens share positions. Token ids must be below `token_count`.
    """

    def __init__(
        self,
        session: Session,
        output_shape: OutputShape,
        *,
        token_count: int,
        compiles: bool,
        length_multiple: int | None = None,
        shares_prefixes: bool = False,
    ) -> None:
        super().__init__(session)
        self._shares_prefixes = shares_prefixes
        self._token_count = token_count
        self._output_shape = output_shape
        self._rounding = {
            "positions": _ROUND_TOKENS if compiles else 1,
            "texts": _ROUND_TEXTS if compiles else 1,
            "longest": length_multiple or (_ROUND_LONGEST if compiles else 1),
        }

    def __call__(self, batch: Batch) -> list[Any]:
        """Compute the outputs for `batch`. Raises `ValueError` for an unknown token id."""
        refuse_unknown_tokens(batch, self._token_count)
        positions = Positions.of(batch, shares_prefixes=self._shares_prefixes)
        shape = BatchShape.of(batch, positions).rounded(**self._rounding)
        feed = index_batch(batch, positions, shape, self._inputs)
        outputs = self._session.run(self._outputs.of(batch), feed)
        return trim_outputs(outputs, batch, self._output_shape)


class ExportedCall:
    """A call of an exported graph and of `stages`, the graph from its hidden states to embeddings."""

    def __init__(
        self, session: Session, stages: Session | None, graph: ExportedGraph, lay_out: LayOut
    ) -> None:
        """`lay_out` makes the possible inputs of the graph of a batch."""
        self._session = session
        self._stages = None if stages is None else StagesCall(stages)
        self._graph = graph
        self._lay_out = lay_out

    def __call__(self, batch: Batch) -> list[Any]:
        """Compute the outputs for `batch`."""
        if not self._graph.mixes_texts:
            return self._compute(batch)
        # Quantisation scales would depend on the other texts of the call, so each text gets its own call.
        alone = [self._compute(select_texts(batch, [index])) for index in range(len(batch))]
        return [np.concatenate(outputs) for outputs in zip(*alone, strict=True)]

    def _compute(self, batch: Batch) -> list[Any]:
        made = self._lay_out(batch)
        feed = {name: made[name].astype(dtype, copy=False) for name, dtype in self._graph.inputs.items()}
        outputs = self._session.run([self._graph.output], feed)
        if self._stages is not None:
            return self._stages(batch, outputs[0])
        if batch.outputs != (Output.USUAL,):
            raise ValueError(f"the graph does not compute {', '.join(batch.outputs)}")
        return outputs


class StagesCall(GraphCall):
    """A call of a graph from `graphs.exported.build_stages`, which turns hidden states into embeddings."""

    def __call__(self, batch: Batch, hidden: Any) -> list[Any]:
        """Compute the outputs for `hidden`: (texts, longest, width), float32, for the texts of `batch`."""
        feed = {name: hidden if name == "hidden" else getattr(batch, name) for name in self._inputs}
        return self._session.run(self._outputs.of(batch), feed)


def prepare_exported(
    description: "ModelDescription", folder: Path, optimize: Callable[[Path, Path], None]
) -> None:
    """Prepare the exported graph of `description` in `folder`; `optimize` writes the optimised graph there.

    It gets the path of the graph, which is in `folder` if only a part of the exported one is used.

    Raises the same errors as `graphs.exported.read_exported`: `UnsupportedModel` and `CorruptModel`.
    """
    # Imported only when a graph is prepared: this import takes longer than a whole later start.
    from vecmill.graphs.exported import build_stages, read_exported, write_used_graph
    from vecmill.graphs.finish import write_graph

    graph = read_exported(description)
    optimize(write_used_graph(description, folder), folder)
    if graph.is_per_token:
        write_graph(build_stages(description, graph.width), folder / STAGES_FILE)
    document = dataclasses.asdict(dataclasses.replace(graph, inputs=dict(graph.inputs)))
    (folder / GRAPH_FILE).write_text(json.dumps(document, indent=2), encoding="utf-8")


def read_prepared(folder: Path) -> ExportedGraph:
    """Read the description of the graph that `prepare_exported` wrote."""
    document = json.loads((folder / GRAPH_FILE).read_text(encoding="utf-8"))
    return ExportedGraph(**{**document, "precision": Precision(document["precision"])})


def open_exported(
    description: "ModelDescription", folder: Path, session: Session, start: Callable[[Path], Session]
) -> ExportedCall:
    """Return a call of the prepared graph in `session`. `start` opens a session for the stages."""
    graph = read_prepared(folder)
    stages = start(folder / STAGES_FILE) if graph.is_per_token else None
    return ExportedCall(session, stages, graph, _find_inputs(description))


def _find_inputs(description: "ModelDescription") -> LayOut:
    """Return what makes the inputs of an exported graph: padded texts, or the pixels of pictures."""
    encoder = description.encoder
    if isinstance(encoder, PictureTowerConfig):
        return lambda batch: {"pixel_values": join_patches(batch.token_ids, encoder)}
    pad_id = max(0, read_token_id(description.config, "pad_token_id", None) or 0)
    return lambda batch: pad_texts(batch, texts=len(batch), length=int(batch.lengths.max()), pad_id=pad_id)


def trim_outputs(outputs: list[Any], batch: Batch, usual: OutputShape) -> list[Any]:
    """Return the outputs without the outputs of the padding that was added to `batch`.

    `usual` is the shape of the usual output.
    """
    shapes = batch.output_shapes(usual)
    if OutputShape.SPARSE in shapes:
        values, columns, counts = outputs
        kept = int(counts[: len(batch)].sum())
        return [values[:kept], columns[:kept], counts[: len(batch)]]
    pairs = zip(outputs, shapes, strict=True)
    return [output[: int(batch.row_counts(shape).sum())] for output, shape in pairs]


def make_embeddings(
    info: EngineInfo, outputs: list[Any], batch: Batch, *, computed_tokens: int
) -> Embeddings:
    """Return the embeddings of `batch` from the outputs of its model, normalised if the engine normalises."""
    if OutputShape.SPARSE in batch.output_shapes(info.output_shape):
        values, columns, counts = outputs
        return Embeddings(values, _offsets(counts), computed_tokens, columns)
    asked = batch.outputs
    made = [_make_output(info, *each, batch, computed_tokens) for each in zip(asked, outputs, strict=True)]
    return made[0] if len(made) == 1 else replace(made[0], others=dict(zip(asked[1:], made[1:], strict=True)))


def _make_output(
    info: EngineInfo, output: Output, rows: Any, batch: Batch, computed_tokens: int
) -> Embeddings:
    match output:
        case Output.TOKEN_WEIGHTS:
            return _pool_weights(rows[:, 0], batch, computed_tokens)
        case Output.USUAL if info.output_shape is OutputShape.TEXT and info.normalizes:
            unit, lengths = scale_to_unit(rows)
            return Embeddings.one_per_text(unit, computed_tokens=computed_tokens, lengths=lengths)
        case Output.USUAL if info.output_shape is OutputShape.TEXT:
            return Embeddings.one_per_text(rows, computed_tokens=computed_tokens)
        case Output.TOKEN_VECTORS:
            return Embeddings(rows, _offsets(batch.row_counts(OutputShape.REST)), computed_tokens)
    return Embeddings(rows, batch.offsets, computed_tokens)


def _pool_weights(weights: FloatArray, batch: Batch, computed_tokens: int) -> Embeddings:
    """Return sparse embeddings: of each text, the largest weight of each token id, without zeros.

    `weights` (n,) belong to the tokens `batch.head_tokens`.
    """
    texts = np.repeat(np.arange(len(batch)), batch.row_counts(OutputShape.REST))
    ids = batch.token_ids[batch.head_tokens]
    kept = weights != 0  # NaN is kept, so that it does not look like a text without weights
    texts, ids, weights = texts[kept], ids[kept], weights[kept]
    order = np.lexsort((ids, texts))
    texts, ids, weights = texts[order], ids[order], weights[order]
    is_first = np.ones(len(ids), np.bool_)
    is_first[1:] = (np.diff(texts) != 0) | (np.diff(ids) != 0)
    starts = np.flatnonzero(is_first)
    largest = np.maximum.reduceat(weights, starts) if len(starts) else weights
    counts = np.bincount(texts[starts], minlength=len(batch))
    return Embeddings(largest, _offsets(counts), computed_tokens, ids[starts])


def _offsets(counts: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts)))


def join_embeddings(parts: Sequence[Embedding], *, computed_tokens: int) -> Embeddings:
    """Join the embeddings of single texts, at least one, in order."""
    combined = [part for part in parts if isinstance(part, CombinedEmbedding)]
    single = [part.usual if isinstance(part, CombinedEmbedding) else part for part in parts]
    joined = _join_single(single, computed_tokens)
    if not combined:
        return joined
    others = {
        output: _join_single([part.others[output] for part in combined], computed_tokens)
        for output in combined[0].others
    }
    return replace(joined, others=others)


def _join_single(parts: Sequence[SingleEmbedding], computed_tokens: int) -> Embeddings:
    sparse = [part for part in parts if isinstance(part, SparseEmbedding)]
    if sparse:
        offsets = np.cumsum([0, *(len(part.values) for part in sparse)])
        values = np.concatenate([part.values for part in sparse])
        return Embeddings(values, offsets, computed_tokens, np.concatenate([part.columns for part in sparse]))
    unit = [part.length for part in parts if isinstance(part, UnitEmbedding)]
    offsets = np.cumsum([0, *(len(dense(part)) for part in parts)])
    lengths = np.array(unit, np.float32) if unit else None
    return Embeddings(stack_embeddings(parts), offsets, computed_tokens, lengths=lengths)
