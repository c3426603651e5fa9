"""The numbers of texts of one queue, by how they ended."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """The numbers of texts since the queue was made."""

    admitted: int = 0
    joined: int = 0
    done: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """Texts that reached a final state."""
        return self.done + self.failed + self.expired + self.cancelled

    @property
    def changing(self) -> tuple[int, int, int, int, int]:
        """The counts that the dispatcher reports: joined, done, failed, expired, cancelled."""
        return self.joined, self.done, self.failed, self.expired, self.cancelled


@dataclass(slots=True)
class CountsSnapshot(Counts):
    """The counts of texts at one moment: `admitted` is the sum of the outcomes and of `open`.

    `waiting` and `waiting_tokens` count the open texts that have not reached a lane.
    """

    open: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
