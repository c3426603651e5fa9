"""What the columns of a model's rows are like, which rows of 8 bits are steps of.

How it works. The ranges of a request's own rows would give the same text other numbers in another
request, and vectors of two requests could not be compared. So they are those of the model: of rows of
texts of our own, embedded once, when somebody first asks for 8 bits.
"""

import asyncio

import numpy as np

from vecmill.fidelity.sample import sample_texts
from vecmill.intake import Intake
from vecmill.operations.embed import embed, finish_rows
from vecmill.reading import Reading, Truncation
from vecmill.rows import find_ranges
from vecmill.types import EmbedRequest, FloatArray

# Beyond this many texts the ranges hardly grow.
SAMPLE_TEXTS = 400
# So many at a time count as bulk, which gives way to small requests.
PIECE_TEXTS = 32


class Ranges:
    """The ranges of one loaded model. Use from one event loop."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._rows: asyncio.Task[FloatArray] | None = None

    async def find(self, dimensions: int | None = None, *, normalize: bool | None = None) -> FloatArray:
        """The least and the greatest value of each column: (2, dim), for rows cut and normalised so.

        Raises as `Mill.submit` does, the first time.
        """
        if self._rows is None or _has_failed(self._rows):
            self._rows = asyncio.create_task(self._embed_sample())
        # Whoever came first may leave; the others still wait.
        rows = await asyncio.shield(self._rows)
        return find_ranges(finish_rows(rows, self._intake.description, dimensions, normalize))

    async def _embed_sample(self) -> FloatArray:
        """The rows of the sample: bit by bit, so that others need not wait and no limit is in the way."""
        limits = self._intake.limits
        size = min(PIECE_TEXTS, limits.max_inputs)
        longest = min(limits.max_text_characters, max(1, limits.max_request_characters // size))
        texts = [text[:longest] for text in sample_texts(SAMPLE_TEXTS) if text]
        reading = Reading(truncation=Truncation(max_tokens=max(1, limits.max_request_tokens // size)))
        pieces = [tuple(texts[start : start + size]) for start in range(0, len(texts), size)]
        results = [await embed(self._intake, EmbedRequest(piece, reading)) for piece in pieces]
        return np.concatenate([result.rows for result in results])


def _has_failed(task: "asyncio.Task[FloatArray]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
