"""The look-up of queries in the table of an asymmetric model, and the route of each text.

A look-up takes microseconds. So queries enter no queue and wait for no engine, and are answered also when the
queue of documents is full.

Sources: sentence-transformers 6.2, `sparse_encoder/modules/sparse_static_embedding.py`,
`sentence_transformer/modules/static_embedding.py`; Geng et al. 2024,
arXiv:2411.04403 (queries without inference).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from vecmill.architectures.static import read_table
from vecmill.directory_layouts.asymmetric import WEIGHTS
from vecmill.errors import CorruptModel, InvalidRequest
from vecmill.models import ModelDescription, Task
from vecmill.models.directory import load_failures
from vecmill.models.stages import Truncate
from vecmill.models.weights import Weights
from vecmill.requests import Purpose, TextOptions, TextOrIds, Truncation
from vecmill.tokenization.pairs import encode_inputs
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding, SparseEmbedding, UnitEmbedding
from vecmill.vectors import normalize_embeddings, scale_to_unit

# So many rows of a table are added up at once.
_ROWS = 4_096


def find_route(description: ModelDescription, options: TextOptions) -> Purpose:
    """Return whether texts are embedded as queries or as documents. Without a router all are documents.

    The purpose decides, or the name of the prompt if it is that of a route, else the default route. Raises
    `InvalidRequest` for other purposes, and if there is no default.
    """
    router, purpose = description.router, options.purpose
    if router is None or purpose in (Purpose.QUERY, Purpose.DOCUMENT):
        return Purpose.DOCUMENT if router is None or purpose is None else purpose
    if purpose is not None:
        raise InvalidRequest(
            f"`input_type` is {purpose.value}; this model embeds queries and documents, and "
            "has no other way.",
            field="input_type",
        )
    if options.prompt_name in (Purpose.QUERY, Purpose.DOCUMENT):
        return Purpose(options.prompt_name)
    if router.default is None:
        raise InvalidRequest(
            "`input_type` is missing: this model embeds queries and documents in different ways, and has no "
            "default. Send `query` or `document`.",
            field="input_type",
        )
    return router.default


@dataclass(frozen=True, slots=True)
class QuerySide:
    """The queries of a loaded model: their tokenizer, and the table of tokens.

    `table` is (tokens + 1,) float32 with a weight for each token, or (tokens + 1, dim) with an embedding for
    each. Its last entry is 0 and belongs to an empty text.
    """

    description: ModelDescription
    tokenizer: Tokenizer
    table: FloatArray

    @classmethod
    def load(cls, description: ModelDescription) -> Self:
        """Read the tokenizer and the table. Raises `CorruptModel` or `UnsupportedModel`, or `LoadFailed`."""
        tokenizer = Tokenizer.load(description)
        with load_failures(description.directory):
            weights = Weights.open(*description.weights_files)
            if description.task is Task.SPARSE:
                table = weights.tensor(WEIGHTS, (description.vocab_size,)).read()
            else:
                table = read_table(weights)
        highest = max(tokenizer.library.get_vocab(with_added_tokens=True).values(), default=0)
        if highest >= len(table):
            raise CorruptModel(
                f"{description.tokenizer_file} has token ids up to {highest}, but "
                f"{description.weights_files[0]} has only {len(table)} entries."
            )
        if not np.isfinite(table).all():
            raise CorruptModel(f"{description.weights_files[0]} holds values that are not finite.")
        return cls(
            description, tokenizer, np.concatenate([table, np.zeros((1, *table.shape[1:]), np.float32)])
        )

    def encode_in_slices(
        self, inputs: Sequence[TextOrIds], *, prompt: str, truncation: Truncation
    ) -> Slices[list[TokenSequence]]:
        """Encode queries in slices, and mark them as those that no engine computes."""
        sequences = yield from encode_inputs(
            self.tokenizer, None, inputs, prompt=prompt, truncation=truncation
        )
        return [replace(sequence, is_looked_up=True) for sequence in sequences]

    def count_numbers(self, sequences: Sequence[TokenSequence]) -> int:
        """Return how many numbers a look-up of `sequences` reads, all together."""
        return sum(map(len, sequences)) * (self.table.size // len(self.table))

    def embed(self, sequence: TokenSequence) -> Embedding:
        """Return the embedding of a query."""
        if self.description.task is Task.SPARSE:
            columns = np.unique(sequence.token_ids)
            values = self.table[columns]
            kept = values != 0
            return SparseEmbedding(columns[kept], values[kept])
        return self._finish(self._average(sequence))

    def _average(self, sequence: TokenSequence) -> FloatArray:
        """Return the mean of the token embeddings: (1, dim) float32."""
        ids, total = sequence.token_ids, np.zeros(self.table.shape[1])
        for start in range(0, len(ids), _ROWS):
            total += self.table[ids[start : start + _ROWS]].sum(axis=0, dtype=np.float64)
        return np.asarray(total[None] / len(ids), np.float32)

    def _finish(self, embedding: FloatArray) -> Embedding:
        """Apply the stages after the mean: normalisation and truncation, if the model has them."""
        description = self.description
        if description.normalize:
            unit, lengths = scale_to_unit(embedding)
            return UnitEmbedding(unit, float(lengths[0]))
        for stage in description.stages[1:]:
            if isinstance(stage, Truncate):
                embedding = embedding[:, : stage.width]
            else:
                embedding = normalize_embeddings(embedding)
        return np.ascontiguousarray(embedding)
