"""How a batch becomes the inputs of a session of ONNX Runtime, and what comes back the outputs of a model.

Sessions are passed in. The outputs are those that `graphs.build.build_graph` names, for the texts of the
batch and no others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from vecmill.engines.buckets import pad_texts, select_texts
from vecmill.engines.indices import Extent, index_batch, refuse_unknown_tokens
from vecmill.models.exported import ExportedGraph
from vecmill.rows import stack_rows
from vecmill.types import Batch, Row, RowForm, Rows, SparseRow

Call = Callable[[Batch], list[Any]]
"""Computes the outputs of a model for a batch. Raises whatever the session raises."""

# Shapes are rounded up to these where a provider compiles for what it sees.
_ROUND_TOKENS, _ROUND_TEXTS, _ROUND_LONGEST = 256, 8, 16


class Session(Protocol):
    """What is needed of `onnxruntime.InferenceSession`."""

    def get_inputs(self) -> list[Any]:
        """The inputs, each with a name."""
        ...

    def run(self, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        """Compute the outputs called `names`, or all."""
        ...


class RaggedCall:
    """A graph with a `RaggedLayout`: it takes the arrays of a batch as they are."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs = [found.name for found in session.get_inputs()]

    def __call__(self, batch: Batch) -> list[Any]:
        """As `Call`."""
        return self._session.run(None, {name: getattr(batch, name) for name in self._inputs})


class IndexedCall:
    """A graph with an `IndexedLayout`, for providers that would compute indices badly, or compile for shapes.

    With `compiles` shapes are rounded up, so that few are seen. Tokens are numbered below `token_count`.
    """

    def __init__(
        self,
        session: Session,
        form: RowForm,
        *,
        token_count: int,
        compiles: bool,
        length_multiple: int | None = None,
    ) -> None:
        self._session = session
        self._token_count = token_count
        self._form = form
        self._inputs = [found.name for found in session.get_inputs()]
        self._rounding = {
            "positions": _ROUND_TOKENS if compiles else 1,
            "texts": _ROUND_TEXTS if compiles else 1,
            "longest": length_multiple or (_ROUND_LONGEST if compiles else 1),
        }

    def __call__(self, batch: Batch) -> list[Any]:
        """As `Call`."""
        refuse_unknown_tokens(batch, self._token_count)
        indices = index_batch(batch, Extent.of(batch).rounded(**self._rounding))
        outputs = self._session.run(None, {name: indices[name] for name in self._inputs})
        return trim_outputs(outputs, batch, self._form)


class ExportedCall:
    """A graph that another program exported, and `stages`, the graph that makes rows of what it gives."""

    def __init__(
        self, session: Session, stages: Session | None, graph: ExportedGraph, *, filler: int
    ) -> None:
        self._session = session
        self._stages = None if stages is None else StagesCall(stages)
        self._graph = graph
        self._filler = filler

    def __call__(self, batch: Batch) -> list[Any]:
        """As `Call`."""
        if not self._graph.mixes_texts:
            return self._compute(batch)
        # Their scales would depend on who shares the call; alone, a text's row is always the same.
        alone = [self._compute(select_texts(batch, [place])) for place in range(len(batch))]
        return [np.concatenate(outputs) for outputs in zip(*alone, strict=True)]

    def _compute(self, batch: Batch) -> list[Any]:
        padded = pad_texts(batch, texts=len(batch), length=int(batch.lengths.max()), filler=self._filler)
        feed = {name: padded[name].astype(dtype, copy=False) for name, dtype in self._graph.inputs.items()}
        outputs = self._session.run([self._graph.output], feed)
        return outputs if self._stages is None else self._stages(batch, outputs[0])


class StagesCall:
    """A graph of `graphs.exported.build_stages`: from hidden states of padded texts to rows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs = [found.name for found in session.get_inputs() if found.name != "hidden"]

    def __call__(self, batch: Batch, hidden: Any) -> list[Any]:
        """Outputs for `hidden` (texts, longest, width), float32, of just the texts of `batch`."""
        return self._session.run(
            None, {"hidden": hidden, **{name: getattr(batch, name) for name in self._inputs}}
        )


def trim_outputs(outputs: list[Any], batch: Batch, form: RowForm) -> list[Any]:
    """The outputs without what was computed for the gap between `batch` and a larger shape."""
    match form:
        case RowForm.TEXT:
            return [outputs[0][: len(batch)]]
        case RowForm.TOKEN:
            return [outputs[0][: len(batch.token_ids)]]
        case RowForm.SPARSE:
            values, columns, counts = outputs
            kept = int(counts[: len(batch)].sum())
            return [values[:kept], columns[:kept], counts[: len(batch)]]


def make_rows(form: RowForm, outputs: list[Any], batch: Batch, *, computed_tokens: int) -> Rows:
    """The rows of `batch` from the outputs of its model."""
    match form:
        case RowForm.TEXT:
            return Rows.one_per_text(outputs[0], computed_tokens=computed_tokens)
        case RowForm.TOKEN:
            return Rows(outputs[0], batch.offsets, computed_tokens)
        case RowForm.SPARSE:
            values, columns, counts = outputs
            return Rows(values, np.concatenate(([0], np.cumsum(counts))), computed_tokens, columns)


def join_parts(parts: Sequence[Row], *, computed_tokens: int) -> Rows:
    """Rows of what each text gets, in order; there must be at least one text."""
    offsets = np.cumsum([0, *map(_count, parts)])
    sparse = [part for part in parts if isinstance(part, SparseRow)]
    if sparse:
        values = np.concatenate([part.values for part in sparse])
        return Rows(values, offsets, computed_tokens, np.concatenate([part.columns for part in sparse]))
    return Rows(stack_rows(parts), offsets, computed_tokens)


def _count(part: Row) -> int:
    return len(part.values) if isinstance(part, SparseRow) else len(part)
