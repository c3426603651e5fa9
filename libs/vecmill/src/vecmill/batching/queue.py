"""The bounded queue: admitted requests, waiting and running jobs, and how each text ended.

How it works. A request is admitted whole or not at all; its texts become tickets. Each ticket belongs to a
job, the computation of one token sequence. Tickets are deduplicated: one whose sequence is already waiting or
running joins the existing job. Requests wait in lines, one for each priority, and each waiting job is at home
in one request. The policy picks jobs from the lines; `take` marks them running; `finish` hands a job's
outcome to all of its open tickets.

Rules:
1. Everything that changes a ticket's state is in this file. The file uses no clock (callers pass `now`), no
   thread and no event loop. The dispatcher holds a lock around every call; without it, others read single
   numbers only.
2. Every admitted ticket ends exactly once: done, failed, expired or cancelled.
   `counts.admitted == counts.ended + open_texts`, always.
3. `waiting_texts` and `waiting_tokens` count all waiting tickets, including tickets that joined a job, so
   that the limits always bound memory. `work_texts` and `work_tokens` count work that waits, each job once.
4. A request ends when its last ticket does. The first failure or expiry ends it at once: its
   other tickets are cancelled, since nobody could use them.
5. A job without open tickets leaves its line at once. If the job is running, it continues and its outcome is
   dropped.
6. A waiting job is at home in the request that is first in line among those that need it.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from operator import attrgetter

from vecmill.batching.line import Line
from vecmill.batching.prefixes import predict_tokens
from vecmill.batching.ticket import (
    OWN_WORK,
    Counts,
    CountsSnapshot,
    Job,
    QueuedRequest,
    Terms,
    Ticket,
    TicketState,
)
from vecmill.config import QueueConfig
from vecmill.errors import DeadlineExceeded, VecmillError
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence, ids_of
from vecmill.values.embeddings import Embedding
from vecmill.values.observer import BatchTimeline

# The part of the queue that the texts of one client may fill, beside a first request of any size.
CLIENT_SHARE = 2 / 3

_index_of = attrgetter("index")
_URGENCY = {priority: rank for rank, priority in enumerate(Priority)}


def _place(request: QueuedRequest) -> tuple[int, float, int]:
    """Return the place of a request among all lines: the lowest goes first."""
    return _URGENCY[request.terms.priority], request.tag, request.number


class Room(StrEnum):
    """Whether a request fits into the queue."""

    FITS = "fits"
    FULL = "full"
    NEVER = "never"


@dataclass(slots=True)
class _Waiting:
    """What a client has waiting."""

    texts: int = 0
    tokens: int = 0


class Queue:
    """The queue of one dispatcher; see the module docstring."""

    def __init__(self, config: QueueConfig, text_s: Callable[[int], float]) -> None:
        """`text_s` returns the predicted core seconds of a text of so many tokens."""
        self.lines = {
            priority: Line(ordered_by_end=priority is not Priority.INTERACTIVE) for priority in Priority
        }
        self.counts = Counts()
        self.own_counts = Counts()  # the same for `OWN_WORK`
        self.waiting_texts = 0
        self.waiting_tokens = 0
        self.work_texts = 0
        self.work_tokens = 0
        self.open_texts = 0
        self._waiting_of: dict[str | None, _Waiting] = {}
        self._config = config
        self._text_s = text_s
        self._jobs: dict[bytes, Job] = {}
        self._open: dict[int, QueuedRequest] = {}
        # By number, so that the heap does not keep the embeddings of ended requests in memory.
        self._deadlines: list[tuple[float, int]] = []
        self._numbers = count()

    def snapshot(self) -> CountsSnapshot:
        """Return all counts of the texts of clients."""
        own = self._waiting_of.get(OWN_WORK, _Waiting())
        counts = self.counts
        return CountsSnapshot(
            counts.admitted,
            counts.joined,
            counts.done,
            counts.failed,
            counts.expired,
            counts.cancelled,
            open=counts.admitted - counts.ended,
            waiting=self.waiting_texts - own.texts,
            waiting_tokens=self.waiting_tokens - own.tokens,
        )

    def room_for(self, texts: int, tokens: int, client: str | None = None) -> Room:
        """Return whether a request of this size fits now, later, or never.

        A client that has something waiting may fill `CLIENT_SHARE` of the queue.
        """
        most_texts, most_tokens = self._config.max_queue_texts, self._config.max_queue_tokens
        if texts > most_texts or tokens > most_tokens:
            return Room.NEVER
        fits = self.waiting_texts + texts <= most_texts and self.waiting_tokens + tokens <= most_tokens
        own = self._waiting_of.get(client)
        if own is not None:
            fits &= own.texts + texts <= CLIENT_SHARE * most_texts
            fits &= own.tokens + tokens <= CLIENT_SHARE * most_tokens
        return Room.FITS if fits else Room.FULL

    def costs_s(self, sequences: Sequence[TokenSequence]) -> list[float]:
        """Return the predicted core seconds that each sequence adds; 0 for those that join a job."""
        if len(sequences) == 1:  # it has its prefix for itself
            text = sequences[0]
            return [0.0 if text.key in self._jobs else self._text_s(len(text.token_ids))]
        lengths = [*map(len, map(ids_of, sequences))]
        lengths = predict_tokens(lengths, [sequence.shared for sequence in sequences])
        by_length: dict[int, float] = {}
        seen: set[bytes] = set()
        costs_s = []
        for sequence, length in zip(sequences, lengths, strict=True):
            if sequence.key in self._jobs or sequence.key in seen:
                costs_s.append(0.0)
                continue
            seen.add(sequence.key)
            if length not in by_length:
                by_length[length] = self._text_s(length)
            costs_s.append(by_length[length])
        return costs_s

    def admit(
        self,
        sequences: Sequence[TokenSequence],
        terms: Terms,
        now: float,
        costs_s: Sequence[float] | None = None,
    ) -> QueuedRequest:
        """Admit a request that `room_for` says fits: all of `sequences`, at least one.

        `costs_s` is the result of the method of this name, if the caller has it.
        """
        assert sequences
        number, texts = next(self._numbers), len(sequences)
        counts = self.own_counts if terms.client == OWN_WORK else self.counts
        request = QueuedRequest(number, terms, counts, now, terms.deadline)
        costs_s = self.costs_s(sequences) if costs_s is None else costs_s
        lengths = [*map(len, map(ids_of, sequences))]
        request.tokens = sum(lengths)
        self.lines[terms.priority].place(request, sum(costs_s))
        self._count_waiting(request, texts, request.tokens)
        # A request lists its jobs with the longest first.
        for index in sorted(range(texts), key=lengths.__getitem__, reverse=True):
            request.tickets.append(self._issue(request, index, sequences[index], costs_s[index], now))
        request.tickets.sort(key=_index_of)
        request.embeddings = [None] * texts
        request.open_tickets = texts
        self.open_texts += texts
        counts.admitted += texts
        self._open[number] = request
        self._remember_deadline(request)
        return request

    def take(self, jobs: Sequence[Job], now: float, batch: BatchTimeline | None = None) -> None:
        """Mark waiting `jobs` as running, in `batch` if its times are recorded."""
        for job in jobs:
            self.lines[job.home.terms.priority].serve(job)
            self.work_texts -= 1
            self.work_tokens -= job.tokens
            job.running = True
            job.batch = batch
            for ticket in job.tickets:
                self._start(ticket, now)

    def finish(self, job: Job, outcome: Embedding | VecmillError, now: float) -> list[QueuedRequest]:
        """Give the outcome of `job` to its open tickets, and return the requests that ended as a result.

        A job that the queue has already dropped, because its lane was given up, is ignored.
        """
        if self._jobs.get(job.sequence.key) is not job:
            return []
        ended = []
        for ticket in tuple(job.tickets):
            if ticket not in job.tickets:  # cancelled a moment ago, with another ticket of its request
                continue
            if isinstance(outcome, VecmillError):
                ended.append(self._fail(ticket, outcome, now))
            elif self._close(ticket, TicketState.DONE, now, embedding=outcome):
                ended.append(ticket.request)
        self._jobs.pop(job.sequence.key, None)  # it has left already if it was waiting
        return ended

    def cancel(self, request: QueuedRequest, now: float) -> None:
        """Cancel `request`, whose client no longer waits for the result."""
        for ticket in request.tickets:
            if ticket.is_open:
                self._close(ticket, TicketState.CANCELLED, now)

    def expire(self, now: float) -> list[QueuedRequest]:
        """End every request whose deadline is at or before `now`, and return these requests."""
        due: list[QueuedRequest] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = self._open.get(heapq.heappop(self._deadlines)[1])
            if request is None:
                continue
            if request.deadline > now:  # it was put off
                self._remember_deadline(request)
            else:
                due.append(request)
        return self.give_up(due, now) if due else due

    def give_up(self, requests: Sequence[QueuedRequest], now: float) -> list[QueuedRequest]:
        """End requests that are not answered in time, and return them."""
        # The last request first: when the home of a job ends, the job looks for another among all requests
        # that need it, and the home is usually the oldest of them.
        for request in reversed(requests):
            began = request.terms.accepted_at
            limit_s = round(request.deadline - (request.admitted_at if began is None else began), 2)
            request.error = DeadlineExceeded(
                f"The answer was not there within {limit_s:g} s. Try again, or allow more time."
                if request.deadline <= now
                else f"This machine has become too slow to answer within {limit_s:g} s. Try again later."
            )
            for ticket in request.tickets:
                if ticket.is_open:
                    self._close(ticket, TicketState.EXPIRED, now)
        return list(requests)

    def put_off(self, requests: Sequence[QueuedRequest], seconds: float) -> None:
        """Give open requests later deadlines."""
        for request in requests:
            request.deadline += seconds  # `expire` finds it at the former deadline

    def fail_all(self, error: VecmillError, now: float, *, also_running: bool = False) -> list[QueuedRequest]:
        """End every waiting job with `error`, and return the requests that ended as a result.

        With `also_running`, running jobs end too, and their outcomes are dropped.
        """
        jobs = [job for job in self._jobs.values() if also_running or not job.running]
        return [request for job in jobs for request in self.finish(job, error, now)]

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of a request that may still be open.

        May be called without the lock.
        """
        return self._deadlines[0][0] if self._deadlines else None

    def _issue(
        self, request: QueuedRequest, index: int, sequence: TokenSequence, cost_s: float, now: float
    ) -> Ticket:
        job = self._jobs.get(sequence.key)
        if job is None:
            job = Job(sequence, len(sequence.token_ids), request, now, cost_s)
            self._jobs[sequence.key] = job
            self.lines[request.terms.priority].add(job)
            self.work_texts += 1
            self.work_tokens += job.tokens
        else:
            request.counts.joined += 1
            if request.terms.timeline is not None:
                request.terms.timeline.joined_texts += 1
            if not job.running and _place(request) < _place(job.home):
                self._move_home(job, request)
        ticket = Ticket(request, index, job)
        job.tickets[ticket] = None
        if job.running:
            self._start(ticket, now)
        return ticket

    def _move_home(self, job: Job, home: QueuedRequest) -> None:
        self.lines[job.home.terms.priority].drop(job)
        job.home = home
        self.lines[home.terms.priority].adopt(job)

    def _start(self, ticket: Ticket, now: float) -> None:
        ticket.move(TicketState.RUNNING)
        request, batch = ticket.request, ticket.job.batch
        self._count_waiting(request, -1, -ticket.job.tokens)
        if request.started_at is None:
            request.started_at = now
        if request.terms.timeline is not None and batch is not None:
            request.terms.timeline.enter(batch)

    def _fail(self, ticket: Ticket, error: VecmillError, now: float) -> QueuedRequest:
        request = ticket.request
        if request.error is None:
            request.error = error
        self._close(ticket, TicketState.FAILED, now)
        self.cancel(request, now)
        return request

    def _close(
        self, ticket: Ticket, state: TicketState, now: float, embedding: Embedding | None = None
    ) -> bool:
        """Move `ticket` to a final state, and return whether its request ended as a result."""
        request, job = ticket.request, ticket.job
        if ticket.state is TicketState.QUEUED:
            self._count_waiting(request, -1, -job.tokens)
        ticket.move(state)
        counts = request.counts
        match state:
            case TicketState.DONE:
                counts.done += 1
            case TicketState.FAILED:
                counts.failed += 1
            case TicketState.EXPIRED:
                counts.expired += 1
            case _:
                counts.cancelled += 1
        self.open_texts -= 1
        request.embeddings[ticket.index] = embedding
        request.open_tickets -= 1
        del job.tickets[ticket]
        if not job.running:
            self._rehouse(job, request)
        if request.open_tickets:
            return False
        request.finished_at = now
        del self._open[request.number]
        return True

    def _rehouse(self, job: Job, left: QueuedRequest) -> None:
        """Drop a waiting job that nobody needs any more, or find it another home than the request `left`."""
        if not job.tickets:
            self.lines[job.home.terms.priority].drop(job)
            self.work_texts -= 1
            self.work_tokens -= job.tokens
            del self._jobs[job.sequence.key]
        elif job.home is left and all(ticket.request is not left for ticket in job.tickets):
            self._move_home(job, min((ticket.request for ticket in job.tickets), key=_place))

    def _count_waiting(self, request: QueuedRequest, texts: int, tokens: int) -> None:
        """Count so many more texts of `request` that wait, or fewer."""
        client = request.terms.client
        self.waiting_texts += texts
        self.waiting_tokens += tokens
        own = self._waiting_of.get(client)
        if own is None:
            own = self._waiting_of[client] = _Waiting()
        own.texts += texts
        own.tokens += tokens
        if not own.texts:
            del self._waiting_of[client]

    def _remember_deadline(self, request: QueuedRequest) -> None:
        heapq.heappush(self._deadlines, (request.deadline, request.number))
        # Ended requests leave the heap lazily; never hold more than twice the open ones.
        if len(self._deadlines) > 2 * len(self._open) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._open]
            heapq.heapify(self._deadlines)
