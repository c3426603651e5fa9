"""What waits: a request of several texts, a ticket for each text, a job for each computation.

    Request ──< Ticket >── Job

A ticket is one text of one request. Tickets with equal token sequences share one job. A ticket
goes through its states once; the last one is final:

    QUEUED ──> RUNNING ──> DONE
       │          ├──────> FAILED
       ├──────────┼──────> EXPIRED
       └──────────┴──────> CANCELLED

(QUEUED to FAILED is a lane lost with nobody left to compute.)
"""

from dataclasses import dataclass, field
from enum import StrEnum

from vecmill.errors import VecmillError
from vecmill.types import Row, TokenSequence


class TicketState(StrEnum):
    """Where a ticket is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


_ENDS = {TicketState.DONE, TicketState.FAILED, TicketState.EXPIRED, TicketState.CANCELLED}
TRANSITIONS = {
    TicketState.QUEUED: {TicketState.RUNNING} | _ENDS - {TicketState.DONE},
    TicketState.RUNNING: _ENDS,
}


class Share(StrEnum):
    """Which kind of traffic a request is, the most urgent first; they share the engine by weight.

    Nobody waits for PATIENT ones at a screen: however old, they have their part and no more.
    """

    INTERACTIVE = "interactive"
    BULK = "bulk"
    PATIENT = "patient"


@dataclass(eq=False, slots=True)
class Request:
    """Texts that are admitted and answered together. Set by the queue.

    `rows[i]` is what ticket `i` got; `error` is why the request as a whole failed.
    """

    share: Share
    admitted_at: float
    deadline: float
    tickets: list["Ticket"] = field(default_factory=list)
    rows: list[Row | None] = field(default_factory=list)
    error: VecmillError | None = None
    open_tickets: int = 0
    started_at: float | None = None  # when its first text reached an engine
    finished_at: float | None = None


@dataclass(eq=False, slots=True)
class Job:
    """One token sequence to compute, for every ticket that wants it. Set by the queue."""

    sequence: TokenSequence
    share: Share
    arrived_at: float
    running: bool = False
    tickets: dict["Ticket", None] = field(default_factory=dict)  # the open ones, in order of arrival

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return len(self.sequence)


@dataclass(eq=False, slots=True)
class Ticket:
    """One text of one request. Set by the queue."""

    request: Request
    index: int
    job: Job
    state: TicketState = TicketState.QUEUED

    @property
    def is_open(self) -> bool:
        """Whether it still has to end."""
        return self.state in TRANSITIONS

    def move(self, state: TicketState) -> None:
        """Go to `state`. Going anywhere from a final state is a bug and raises `AssertionError`."""
        assert state in TRANSITIONS.get(self.state, set()), f"a ticket cannot go {self.state} -> {state}"
        self.state = state
