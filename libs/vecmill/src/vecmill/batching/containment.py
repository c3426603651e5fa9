"""One batch through an engine, so that a failure reaches only the texts that cause it.

A call that raises is split in two and each half is tried again, down to the guilty text: one
culprit among n costs at most 2 * ceil(log2(n)) extra calls, and a batch in which every text fails
2n - 2. A row that is not finite fails alone.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.errors import DeviceLost, InferenceFailed, NonFiniteOutput, VecmillError
from vecmill.types import Batch, Row, Rows, TokenSequence

Outcome = Row | VecmillError
Run = Callable[[Batch], Rows]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of each text, in order, and how many positions the engine computed for it all."""

    outcomes: list[Outcome]
    computed_tokens: int


def run_contained(run: Run, sequences: Sequence[TokenSequence]) -> Outcomes:
    """Run `sequences` as one batch; on failure, find the guilty ones.

    Raises no other `Exception` than `DeviceLost`, which ends the lane, as what is none (`SystemExit`, say)
    does.
    """
    try:
        rows = run(Batch.of(sequences))
        if len(rows) != len(sequences):
            raise InferenceFailed(f"The engine returned {len(rows)} rows for {len(sequences)} texts.")
    except DeviceLost:
        raise
    except Exception as error:
        return _split(run, sequences, error)
    return Outcomes(_check_rows(rows), rows.computed_tokens)


def _split(run: Run, sequences: Sequence[TokenSequence], error: Exception) -> Outcomes:
    if len(sequences) == 1:
        logger.error("inference failed for one text of %d tokens: %s", len(sequences[0]), error)
        return Outcomes([_as_ours(error)], 0)
    logger.warning("a batch of %d texts failed and is split: %s", len(sequences), error)
    middle = len(sequences) // 2
    parts = [run_contained(run, part) for part in (sequences[:middle], sequences[middle:])]
    return Outcomes(
        [outcome for part in parts for outcome in part.outcomes], sum(part.computed_tokens for part in parts)
    )


def _as_ours(error: Exception) -> VecmillError:
    if isinstance(error, VecmillError):
        return error
    return InferenceFailed("The engine failed for this text. The server's log says more.")


def _check_rows(rows: Rows) -> list[Outcome]:
    parts: list[Outcome] = [*rows.parts()]
    if np.isfinite(rows.values).all():
        return parts
    return [part if np.isfinite(rows.row(index)).all() else _not_finite() for index, part in enumerate(parts)]


def _not_finite() -> NonFiniteOutput:
    return NonFiniteOutput("The model computed a row that is not finite for this text.")
