"""The rounds of a run: each round gives all missing blocks to the cluster once.

An actor that dies, or a node that is cut off, loses its current blocks. They are missing after the round, and
the next round has them again.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from vecmill.commands.embed.progress import ProgressBar
from vecmill.errors import SetupError, VecmillError
from vecmill_ray.bulk.blocks import BlockCounts, BulkBlock

logger = logging.getLogger(__name__)

# A cluster without a single finished block in this many rounds has a fault that does not pass by itself.
FRUITLESS_ROUNDS = 3
FRUITLESS_PAUSE_S = 10.0

_ACTORS_DIED = "their actors died."


@dataclass(frozen=True, slots=True)
class BlockFailure:
    """A failed attempt to embed blocks. If `is_final`, another attempt would fail too."""

    message: str
    is_final: bool


class BlockCluster(Protocol):
    """A cluster that computes the blocks of one job."""

    def check(self, blocks: Sequence[BulkBlock]) -> list[BlockCounts]:
        """Return the counts of those blocks whose files are complete. Raises `SetupError`."""
        ...

    def embed(self, blocks: Sequence[BulkBlock]) -> Iterator[BlockCounts | BlockFailure]:
        """Embed the blocks once, and return the outcomes as they arrive.

        There is no outcome for blocks of actors that died.
        """
        ...


def describe_failure(error: BaseException) -> BlockFailure:
    """Return the outcome for an error.

    An error of vecmill is final, unless storage or a database failed. Other errors may pass.
    """
    if isinstance(error, VecmillError):
        return BlockFailure(error.message, is_final=not isinstance(error.__cause__, OSError))
    reason = str(error).partition("\n")[0].rstrip(".")
    return BlockFailure(f"{type(error).__name__}: {reason}.", is_final=False)


def complete_blocks(
    cluster: BlockCluster,
    blocks: Sequence[BulkBlock],
    bar: ProgressBar,
    *,
    pause: Callable[[float], object] = time.sleep,
) -> dict[int, BlockCounts]:
    """Embed all blocks that have no file, and return the counts of all blocks.

    Raises `SetupError` if an error is final, or if several rounds finish no block.
    """
    done = {one.number: one for one in cluster.check(blocks)}
    bar.add_existing(sum(one.rows for one in done.values()))
    fruitless = 0
    while missing := [block for block in blocks if block.number not in done]:
        before = len(done)
        problem = _ACTORS_DIED
        for outcome in _embed_round(cluster, missing):
            if isinstance(outcome, BlockFailure):
                problem = outcome.message
            elif outcome.number not in done:
                done[outcome.number] = outcome
                bar.add_embedded(outcome.rows, outcome.tokens)
        fruitless = fruitless + 1 if len(done) == before else 0
        if lost := len(blocks) - len(done):
            logger.warning("%d blocks are embedded again: %s", lost, problem)
        if fruitless >= FRUITLESS_ROUNDS:
            raise SetupError(
                f"{len(missing):,} blocks cannot be embedded, the first from row "
                f"{missing[0].first_place} on: {problem} The finished blocks are kept, and the "
                "same command continues with them."
            )
        if fruitless:
            pause(FRUITLESS_PAUSE_S)
    return done


def _embed_round(cluster: BlockCluster, missing: Sequence[BulkBlock]) -> Iterator[BlockCounts | BlockFailure]:
    """Embed the missing blocks once.

    Blocks that an actor wrote before it died are found by their files. Raises `SetupError` for final errors.
    """
    finished: set[int] = set()
    for outcome in cluster.embed(missing):
        if isinstance(outcome, BlockFailure):
            if outcome.is_final:
                raise SetupError(outcome.message)
        else:
            finished.add(outcome.number)
        yield outcome
    left = [block for block in missing if block.number not in finished]
    yield from cluster.check(left)
