"""The bounded queue: who was admitted, what waits, what runs, how each text ended.

How it works. A request is admitted whole or not at all; its texts become tickets. Each ticket
hangs on a job, the computation of one token sequence; a ticket whose sequence is already waiting
or running joins that job. Jobs wait in lines, one a share. The policy picks jobs from the lines; `take`
marks them running; `finish` hands a job's outcome to all of its tickets that are still open.

Rules:
1. Everything that changes a ticket's state is in this file. It knows no clock (`now` is handed
   in), no thread (the dispatcher holds a lock around every call) and no event loop.
2. Every admitted ticket ends exactly once: done, failed, expired or cancelled.
   `counts.admitted == counts.ended + open_texts`, always.
3. `waiting_texts` and `waiting_tokens` count tickets that wait, joined ones included, so that
   memory is bounded by the limits whatever is joined. `Line.tokens` counts work, each job once.
4. A request ends when its last ticket does. The first failure or expiry ends it at once: its
   other tickets are cancelled, since nobody could use them.
5. A job without open tickets leaves its line at once. One that is running goes on, and its
   outcome is dropped.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from vecmill.batching.line import Line
from vecmill.batching.ticket import Job, Request, Share, Ticket, TicketState
from vecmill.config import QueueConfig
from vecmill.errors import DeadlineExceeded, VecmillError
from vecmill.types import Row, TokenSequence

_URGENCY = {share: rank for rank, share in enumerate(Share)}


class Room(StrEnum):
    """Whether a request fits."""

    FITS = "fits"
    FULL = "full"
    NEVER = "never"


@dataclass(slots=True)
class Counts:
    """Texts, since the queue was made."""

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
        """What the dispatcher reports when it changes: joined, done, failed, expired, cancelled."""
        return self.joined, self.done, self.failed, self.expired, self.cancelled


class Queue:
    """See the top of the file."""

    def __init__(self, config: QueueConfig) -> None:
        self.lines = {share: Line() for share in Share}
        self.counts = Counts()
        self.waiting_texts = 0
        self.waiting_tokens = 0
        self.open_texts = 0
        self._config = config
        self._jobs: dict[bytes, Job] = {}
        self._deadlines: list[tuple[float, int, Request]] = []
        self._numbers = count()
        self._open_requests = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits. Jobs may still run."""
        return not any(self.lines.values())

    @property
    def work_tokens(self) -> int:
        """Tokens that wait to be computed, each job once."""
        return sum(line.tokens for line in self.lines.values())

    def room_for(self, texts: int, tokens: int) -> Room:
        """Whether a request of that size fits now, later, or never."""
        if texts > self._config.max_queue_texts or tokens > self._config.max_queue_tokens:
            return Room.NEVER
        fits = (
            self.waiting_texts + texts <= self._config.max_queue_texts
            and self.waiting_tokens + tokens <= self._config.max_queue_tokens
        )
        return Room.FITS if fits else Room.FULL

    def admit(
        self, sequences: Sequence[TokenSequence], *, share: Share, now: float, deadline: float
    ) -> Request:
        """Admit a request that `room_for` says fits: all of `sequences`, at least one."""
        assert sequences
        assert self.room_for(len(sequences), sum(map(len, sequences))) is Room.FITS
        request = Request(share, admitted_at=now, deadline=deadline)
        for index, sequence in enumerate(sequences):
            request.tickets.append(self._issue(request, index, sequence, now))
        request.rows = [None] * len(sequences)
        request.open_tickets = len(sequences)
        self.open_texts += len(sequences)
        self.counts.admitted += len(sequences)
        self._open_requests += 1
        self._remember_deadline(request)
        return request

    def take(self, jobs: Sequence[Job], now: float) -> None:
        """Mark waiting `jobs` as running."""
        for job in jobs:
            self.lines[job.share].remove(job)
            job.running = True
            for ticket in job.tickets:
                self._start(ticket, now)

    def finish(self, job: Job, outcome: Row | VecmillError, now: float) -> list[Request]:
        """Give `job`'s outcome to its open tickets; return the requests that ended by it.

        A job that is not known any more (its lane was given up before) is ignored.
        """
        if self._jobs.get(job.sequence.key) is not job:
            return []
        ended = []
        for ticket in tuple(job.tickets):
            if not ticket.is_open:  # cancelled a moment ago, with another ticket of its request
                continue
            if isinstance(outcome, VecmillError):
                ended.append(self._fail(ticket, outcome, now))
            elif self._close(ticket, TicketState.DONE, now, row=outcome):
                ended.append(ticket.request)
        self._forget(job)
        return ended

    def cancel(self, request: Request, now: float) -> None:
        """Nobody wants the answer to `request` any more."""
        for ticket in request.tickets:
            if ticket.is_open:
                self._close(ticket, TicketState.CANCELLED, now)

    def expire(self, now: float) -> list[Request]:
        """End every request whose deadline is not after `now`; return them."""
        ended = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if request.finished_at is None:
                request.error = DeadlineExceeded(
                    f"The answer was not there within {request.deadline - request.admitted_at:g} s. "
                    "Try again, or allow more time."
                )
                for ticket in request.tickets:
                    if ticket.is_open:
                        self._close(ticket, TicketState.EXPIRED, now)
                ended.append(request)
        return ended

    def fail_all(self, error: VecmillError, now: float) -> list[Request]:
        """End every waiting job with `error`; return the requests that ended by it."""
        waiting = [job for line in self.lines.values() for job in line]
        return [request for job in waiting for request in self.finish(job, error, now)]

    def next_deadline(self) -> float | None:
        """The earliest deadline of a request that may still be open."""
        return self._deadlines[0][0] if self._deadlines else None

    def _issue(self, request: Request, index: int, sequence: TokenSequence, now: float) -> Ticket:
        job = self._jobs.get(sequence.key)
        if job is None:
            job = self._jobs[sequence.key] = Job(sequence, request.share, now)
            self.lines[job.share].add(job)
        else:
            self.counts.joined += 1
            self._promote(job, request.share)
        ticket = Ticket(request, index, job)
        job.tickets[ticket] = None
        self.waiting_texts += 1
        self.waiting_tokens += job.tokens
        if job.running:
            self._start(ticket, now)
        return ticket

    def _promote(self, job: Job, share: Share) -> None:
        # A job that a more urgent request joins must not wait behind less urgent work.
        if not job.running and _URGENCY[share] < _URGENCY[job.share]:
            self.lines[job.share].remove(job)
            job.share = share
            self.lines[share].add(job)

    def _start(self, ticket: Ticket, now: float) -> None:
        ticket.move(TicketState.RUNNING)
        self._leave_waiting(ticket)
        if ticket.request.started_at is None:
            ticket.request.started_at = now

    def _fail(self, ticket: Ticket, error: VecmillError, now: float) -> Request:
        request = ticket.request
        if request.error is None:
            request.error = error
        self._close(ticket, TicketState.FAILED, now)
        self.cancel(request, now)
        return request

    def _close(self, ticket: Ticket, state: TicketState, now: float, row: Row | None = None) -> bool:
        """Move `ticket` to a final state; say whether its request ended by it."""
        if ticket.state is TicketState.QUEUED:
            self._leave_waiting(ticket)
        ticket.move(state)
        setattr(self.counts, state, getattr(self.counts, state) + 1)
        self.open_texts -= 1
        request, job = ticket.request, ticket.job
        request.rows[ticket.index] = row
        request.open_tickets -= 1
        del job.tickets[ticket]
        if not job.tickets and not job.running:
            self.lines[job.share].remove(job)
            self._forget(job)
        if request.open_tickets:
            return False
        request.finished_at = now
        self._open_requests -= 1
        return True

    def _leave_waiting(self, ticket: Ticket) -> None:
        self.waiting_texts -= 1
        self.waiting_tokens -= ticket.job.tokens

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.sequence.key) is job:
            del self._jobs[job.sequence.key]

    def _remember_deadline(self, request: Request) -> None:
        heapq.heappush(self._deadlines, (request.deadline, next(self._numbers), request))
        # Ended requests leave the heap lazily; never hold more than twice the open ones.
        if len(self._deadlines) > 2 * self._open_requests + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].finished_at is None]
            heapq.heapify(self._deadlines)

    def check(self) -> None:
        """Assert every rule of this file. For tests, and slow."""
        for line in self.lines.values():
            line.check()
        waiting = {job for line in self.lines.values() for job in line}
        jobs = set(self._jobs.values())
        tickets = [ticket for job in jobs for ticket in job.tickets]
        queued = [ticket for ticket in tickets if ticket.state is TicketState.QUEUED]
        assert waiting == {job for job in jobs if not job.running}
        assert all(job.tickets for job in waiting)
        assert all(ticket.state is TicketState.RUNNING for ticket in tickets if ticket.job.running)
        assert all(ticket.state is TicketState.QUEUED for ticket in tickets if not ticket.job.running)
        assert self.open_texts == len(tickets)
        assert self.counts.admitted == self.counts.ended + self.open_texts
        assert self.waiting_texts == len(queued) <= self._config.max_queue_texts
        assert self.waiting_tokens == sum(t.job.tokens for t in queued) <= self._config.max_queue_tokens
