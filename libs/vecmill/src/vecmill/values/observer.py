"""The events of batching, for metrics and logs, and the times of requests and batches, for traces.

Methods of an observer are called without a lock, from the event loop or from a lane's thread. They must be
quick and thread-safe. Each admitted text is counted once as admitted and once, at its end, as done, failed,
expired or cancelled.

Times of timelines are seconds of the mill's clock. A time is `None` if the request ended before it.
"""

import random
from dataclasses import dataclass, field
from enum import StrEnum


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


class Rejection(StrEnum):
    """The reason why a request was refused before any text was admitted."""

    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    TOO_LATE = "too_late"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"


class LaneState(StrEnum):
    """The state of a lane."""

    IDLE = "idle"
    BUSY = "busy"
    HUNG = "hung"
    DEAD = "dead"


@dataclass(slots=True)
class BatchRecord:
    """One finished engine call, as the dispatcher reports it.

    `waits_s` holds, for each text, the seconds from admission to the start of the call. `timeline` is `None`
    unless the observer needs timelines.
    """

    texts: int
    tokens: int
    computed_tokens: int
    inference_s: float
    waits_s: tuple[float, ...]
    timeline: BatchTimeline | None = None


class Observer:
    """A receiver of all events, which does nothing by default.

    Subclasses override the methods that they need. If `needs_timelines` is true, each batch has a timeline.
    """

    needs_timelines: bool = False

    def admitted(self, texts: int, tokens: int) -> None:
        """All texts of a request entered the queue."""

    def rejected(self, reason: Rejection) -> None:
        """A request was refused before any text entered the queue."""

    def joined(self, texts: int) -> None:
        """Some of the admitted texts share the computation of an identical text that waits or runs."""

    def batch_done(self, record: BatchRecord) -> None:
        """An engine call returned."""

    def done(self, texts: int) -> None:
        """Admitted texts got their embeddings."""

    def failed(self, texts: int) -> None:
        """Admitted texts got an error from the engine or a lost lane."""

    def expired(self, texts: int) -> None:
        """Admitted texts passed their deadline."""

    def cancelled(self, texts: int) -> None:
        """Admitted texts were cancelled, since no client waits for the result."""

    def truncated(self, texts: int) -> None:
        """Some texts or pairs of an answered request were longer than their limit, and were cut."""

    def cache_searched(self, in_memory: int, on_disk: int, missing: int) -> None:
        """So many texts of a request were in the embedding cache, and so many have to be computed."""

    def lane(self, lane: int, state: LaneState) -> None:
        """Lane number `lane` changed its state."""
