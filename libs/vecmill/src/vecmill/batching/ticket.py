"""The waiting work: a request of several texts, a ticket for each text, a job for each computation.

    QueuedRequest ──< Ticket >── Job

A ticket is one text of one request. Tickets with equal token sequences share one job: they
are deduplicated. A ticket passes through each state at most once, and the last state is final:

    QUEUED ──> RUNNING ──> DONE
       │          ├──────> FAILED
       ├──────────┼──────> EXPIRED
       └──────────┴──────> CANCELLED

(A ticket goes from QUEUED to FAILED when the last lane is lost.)
"""

from collections import OrderedDict
from dataclasses import dataclass, field, fields
from enum import StrEnum

from vecmill.errors import VecmillError
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding
from vecmill.values.observer import BatchTimeline, RunTimeline


class TicketState(StrEnum):
    """The state of a ticket."""

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


# The client of work that a model does for itself. Its texts are not counted among those of clients.
OWN_WORK = "\0own work"


@dataclass(slots=True)
class Terms:
    """The terms on which a request is admitted. `client` is on whose behalf; `None` is a client too.

    `may_wait` tells whether the deadline may be put off for the work of others: it is not one that the client
    has asked for. `is_try` tells whether the deadline seems to be too early. `timeline` is where the times of
    the request are recorded, `None` if nobody needs them. `accepted_at` is when its time began, if that was
    before the admission.
    """

    priority: Priority
    deadline: float
    client: str | None = None
    may_wait: bool = True
    is_try: bool = False
    timeline: RunTimeline | None = None
    accepted_at: float | None = None


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """Texts that are admitted and answered together. The queue makes them.

    `embeddings[i]` is the output for ticket `i`, `error` the reason why the request as a whole failed.
    `waiting` holds the waiting jobs that are at home in this request, of `waiting_s` core seconds, and `tag`
    its place in the line of its priority. `deadline` is that of the terms, unless it was put off. All its
    texts have `tokens` tokens, and count among `counts`.
    """

    number: int
    terms: Terms
    counts: "Counts"
    admitted_at: float
    deadline: float
    tickets: list["Ticket"] = field(default_factory=list)
    embeddings: list[Embedding | None] = field(default_factory=list)
    error: VecmillError | None = None
    open_tickets: int = 0
    started_at: float | None = None  # when its first text reached an engine
    finished_at: float | None = None
    tag: float = 0.0
    waiting: OrderedDict["Job", None] = field(default_factory=OrderedDict)
    waiting_s: float = 0.0
    tokens: int = 0


@dataclass(eq=False, slots=True)
class Job:
    """One token sequence of `tokens` tokens to compute, for every ticket that needs it. The queue makes jobs.

    The job waits in the line as a part of its `home`, the first in line of the requests that need it.
    `cost_s` is the predicted time in core seconds. `batch` is the timeline of the batch that computes the
    job, if there is one.
    """

    sequence: TokenSequence
    tokens: int
    home: QueuedRequest
    arrived_at: float
    cost_s: float
    running: bool = False
    batch: BatchTimeline | None = None
    tickets: dict["Ticket", None] = field(default_factory=dict)  # the open ones, in order of arrival

    @property
    def timeline(self) -> RunTimeline | None:
        """The timeline of the first request that waits for the job and has a timeline."""
        found = (ticket.request.terms.timeline for ticket in self.tickets)
        return next((timeline for timeline in found if timeline is not None), None)


@dataclass(eq=False, slots=True)
class Ticket:
    """One text of one request. The queue makes tickets."""

    request: QueuedRequest
    index: int
    job: Job
    state: TicketState = TicketState.QUEUED

    @property
    def is_open(self) -> bool:
        """Whether the ticket has not reached a final state."""
        return self.state in TRANSITIONS

    def move(self, state: TicketState) -> None:
        """Change the state to `state`.

        Raises `AssertionError` if the current state is final, which is a bug.
        """
        assert state in TRANSITIONS.get(self.state, ()), f"a ticket cannot go {self.state} -> {state}"
        self.state = state


@dataclass(slots=True)
class Counts:
    """The numbers of texts since the queue was made, by how they ended."""

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


@dataclass(slots=True)
class CountsSnapshot(Counts):
    """The counts of texts at one moment: `admitted` is the sum of the outcomes and of `open`.

    `waiting` and `waiting_tokens` count the open texts that have not reached a lane.
    """

    open: int = 0
    waiting: int = 0
    waiting_tokens: int = 0

    def __add__(self, other: "CountsSnapshot") -> "CountsSnapshot":
        """Return the sum of the counts of two queues."""
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return CountsSnapshot(**sums)
