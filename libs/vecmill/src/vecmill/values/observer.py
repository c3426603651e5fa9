"""The events of batching, for metrics, tests and logs.

Methods are called without a lock, from the event loop or from a lane's thread. They must be quick and
thread-safe. Each admitted text is counted once as admitted and once, at its end, as done, failed, expired or
cancelled.
"""

from dataclasses import dataclass
from enum import StrEnum

from vecmill.values.timeline import BatchTimeline


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


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One finished engine call, as the dispatcher reports it.

    `waits_s` holds, for each text, the seconds from admission to the start of the call. `timeline` is `None`
    unless the observer needs timelines.
    """

    texts: int
    tokens: int
    computed_tokens: int
    lane_width: int
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

    def lane(self, lane: int, state: LaneState) -> None:
        """Lane number `lane` changed its state."""
