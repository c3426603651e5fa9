"""A lane: one worker thread with its state, and the batch that it computes."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from vecmill.batching.ticket import Job
from vecmill.values.observer import LaneState

# A lane in one of these states is never used again.
LOST = frozenset({LaneState.HUNG, LaneState.DEAD})


@dataclass(eq=False, slots=True)
class Lane:
    """One worker thread and its state. Guarded by the dispatcher's lock.

    `width` is the number of cores of the running call, and `called_at` is the time when this call began.
    """

    number: int
    state: LaneState = LaneState.IDLE
    jobs: Sequence[Job] = ()
    width: int = 0
    called_at: float = 0.0
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Jobs that one lane computes in one call on `width` cores.

    `waits_s` holds, for each text, the seconds from admission to now.
    """

    jobs: list[Job]
    width: int
    waits_s: tuple[float, ...]
