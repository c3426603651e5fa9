"""What the batcher tells whoever listens: metrics, tests, logs.

Methods are called under no lock, from the event loop or from a lane's thread, and must be quick
and safe for threads. Each admitted text is counted once as admitted and once, at its end, as
done, failed, expired or cancelled.
"""

from dataclasses import dataclass
from enum import StrEnum


class Rejection(StrEnum):
    """Why a request was refused before any of it was admitted."""

    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"


class LaneState(StrEnum):
    """What a lane is doing."""

    IDLE = "idle"
    BUSY = "busy"
    HUNG = "hung"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One finished engine call. Set by the dispatcher.

    `waits_s` holds, per text, the time from admission to the start of the call.
    """

    texts: int
    tokens: int
    computed_tokens: int
    lane_width: int
    inference_s: float
    waits_s: tuple[float, ...]


class Observer:
    """Hears everything and does nothing. Override what you need."""

    def admitted(self, texts: int, tokens: int) -> None:
        """A request entered the queue, whole."""

    def rejected(self, reason: Rejection) -> None:
        """A request was refused, whole."""

    def joined(self, texts: int) -> None:
        """Some of the admitted texts share the computation of an identical one in flight."""

    def batch_done(self, record: BatchRecord) -> None:
        """An engine call returned."""

    def done(self, texts: int) -> None:
        """Admitted texts got their rows."""

    def failed(self, texts: int) -> None:
        """Admitted texts got an error from the engine or a lost lane."""

    def expired(self, texts: int) -> None:
        """Admitted texts passed their deadline."""

    def cancelled(self, texts: int) -> None:
        """Nobody wanted the answer any more."""

    def lane(self, lane: int, state: LaneState) -> None:
        """Lane number `lane` changed its state."""
