"""The times of requests and batches, recorded for callers that trace requests.

Times are seconds of the mill's clock. A time is `None` if the request ended before it.
"""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """One call of the engine."""

    began_at: float
    ended_at: float
    texts: int


@dataclass(eq=False, slots=True)
class BatchTimeline:
    """One batch. `id` is a random number of 128 bits.

    `runs` are the recorded requests with a text in the batch. `of_texts` has, for each text, the first
    recorded request that waited for the text. A batch with several engine calls was split, because a text
    failed or memory ran out. `ended_at` stays `None` if the lane was lost.
    """

    lane: int
    width: int
    texts: int
    tokens: int
    taken_at: float
    of_texts: tuple["RunTimeline | None", ...] = ()
    id: int = field(default_factory=lambda: random.getrandbits(128) or 1)
    runs: list["RunTimeline"] = field(default_factory=list)
    calls: list[EngineTimes] = field(default_factory=list)
    failed_texts: int = 0
    ended_at: float | None = None


@dataclass(eq=False, slots=True)
class RunTimeline:
    """One call of `Mill.run`: from `began_at` to `resumed_at`, when the event loop took up the result.

    `batches` maps each batch to the number of texts that the request has in it. `joined_texts` counts texts
    that share the computation of an equal text.
    """

    timeline: "Timeline"
    began_at: float
    texts: int = 0
    tokens: int = 0
    joined_texts: int = 0
    tokenized_at: float | None = None
    admitted_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    resumed_at: float | None = None
    has_failed: bool = False
    batches: dict[BatchTimeline, int] = field(default_factory=dict)

    def enter(self, batch: BatchTimeline) -> None:
        """Note that a text of this request is in `batch`. The caller holds the lock of the queue."""
        texts = self.batches.get(batch, 0)
        if not texts:
            batch.runs.append(self)
        self.batches[batch] = texts + 1


class Timeline:
    """The times of all calls of `Mill.run` that belong to one request of the caller."""

    def __init__(self) -> None:
        self.runs: list[RunTimeline] = []

    def begin_run(self, now: float, texts: int) -> RunTimeline:
        """Add a call that begins at `now`, and return its timeline."""
        run = RunTimeline(self, now, texts)
        self.runs.append(run)
        return run
