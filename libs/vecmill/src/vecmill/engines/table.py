"""The engine of inference-free queries, of an asymmetric model: a look-up in a table of tokens, in numpy.

The table has a weight for each token (sparse models), or an embedding for each. A call takes microseconds, so
there is nothing to choose: the engine is no part of the table of engines, and needs no device and no plan.

Sources: sentence-transformers 6.2, `sparse_encoder/modules/sparse_static_embedding.py`,
`sentence_transformer/modules/static_embedding.py`; Geng et al. 2024, arXiv:2411.04403 (queries without
inference).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from vecmill.architectures.static import TOKEN_WEIGHTS, read_table
from vecmill.engines.base import warm_engine
from vecmill.errors import CorruptModel
from vecmill.models.directory import load_failures
from vecmill.models.stages import Truncate
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, Precision
from vecmill.values.positions import refuse_unknown_tokens
from vecmill.values.task import Task
from vecmill.vectors import normalize_embeddings, scale_to_unit

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

# So many rows of a table are added up at once, and so many tokens fill a call: some milliseconds.
_ROWS = 4_096


class TableEngine:
    """The look-up of texts in a table; see the module docstring. Safe for any number of lanes."""

    def __init__(self, description: "ModelDescription", table: FloatArray) -> None:
        """`table` is (tokens + 1,) float32 with a weight for each token, or (tokens + 1, dim).

        Its last entry is 0 and belongs to an empty text.
        """
        self._description = description
        self._table = table
        self.info = EngineInfo(
            name="table",
            precision=Precision.FP32,
            device="cpu",
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=(1,),
            output_shape=description.output_shape,
            parallel_calls=1,
            batch_tokens=_ROWS,
            normalizes=description.normalizes_output,
        )

    @classmethod
    def load(cls, description: "ModelDescription") -> Self:
        """Read the table. Raises `CorruptModel` or `UnsupportedModel`, or `LoadFailed`."""
        with load_failures(description.directory):
            weights = Weights.open(*description.weights_files)
            if description.task is Task.SPARSE:
                table = weights.tensor(TOKEN_WEIGHTS, (description.vocab_size,)).read()
            else:
                table = read_table(weights)
            if not np.isfinite(table).all():
                raise CorruptModel(f"{description.weights_files[0]} holds values that are not finite.")
            empty = np.zeros((1, *table.shape[1:]), np.float32)
            return cls(description, np.concatenate([table, empty]))

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Time calls of a few sizes."""
        return warm_engine(self, texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Look the texts up. Raises `ValueError` for a token id that the table does not have."""
        refuse_unknown_tokens(batch, len(self._table))
        owners = np.repeat(np.arange(len(batch)), batch.lengths)
        if self._description.task is Task.SPARSE:
            return self._weigh(batch, owners)
        return self._finish(batch, self._average(batch, owners))

    def renew(self) -> None:
        """Do nothing: a look-up holds no session."""

    def close(self) -> None:
        """Do nothing: the table goes with the engine."""

    def _weigh(self, batch: Batch, owners: IntArray) -> Embeddings:
        """Return the weight of each different token of each text."""
        size = len(self._table)
        texts, columns = np.divmod(np.unique(owners * size + batch.token_ids), size)
        values = self._table[columns]
        kept = values != 0
        offsets = np.zeros(len(batch) + 1, np.int64)
        np.cumsum(np.bincount(texts[kept], minlength=len(batch)), out=offsets[1:])
        return Embeddings(values[kept], offsets, len(batch.token_ids), columns[kept])

    def _average(self, batch: Batch, owners: IntArray) -> FloatArray:
        """Return the mean of the token embeddings of each text: (texts, dim) float32."""
        sums = np.zeros((len(batch), self._table.shape[1]))
        for start in range(0, len(owners), _ROWS):
            part = slice(start, start + _ROWS)
            firsts = np.flatnonzero(np.diff(owners[part], prepend=-1))
            rows = self._table[batch.token_ids[part]]
            sums[owners[part][firsts]] += np.add.reduceat(rows, firsts, axis=0, dtype=np.float64)
        return np.asarray(sums / batch.lengths[:, None], np.float32)

    def _finish(self, batch: Batch, embeddings: FloatArray) -> Embeddings:
        """Apply the stages after the mean: normalisation and truncation, if the model has them."""
        tokens = len(batch.token_ids)
        for stage in self._description.graph_stages[1:]:
            if isinstance(stage, Truncate):
                embeddings = np.ascontiguousarray(embeddings[:, : stage.width])
            else:
                embeddings = normalize_embeddings(embeddings)
        if not self._description.normalizes_output:
            return Embeddings.one_per_text(embeddings, computed_tokens=tokens)
        unit, lengths = scale_to_unit(embeddings)
        return Embeddings.one_per_text(unit, computed_tokens=tokens, lengths=lengths)
