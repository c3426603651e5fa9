"""Whatever happens in whatever order, every admitted text ends exactly once and all bounds hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.queue_rules import check_queue
from vecmill.batching import line as line_module
from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import Job, QueuedRequest, Terms, TicketState
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.errors import DeadlineExceeded, InferenceFailed
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel
from vecmill.vectors import dense

pytestmark = pytest.mark.promise("answered-once", "all-or-nothing", "deadlines-kept", "no-starvation")

LIMITS = QueueConfig(max_queue_tokens=900, max_queue_texts=24)
BATCHES = BatchConfig(max_batch_tokens=256, interactive_weight=3)

# Few distinct texts, so that joining happens often; the number is the text, its length follows.
texts = st.integers(0, 12)
requests = st.lists(texts, min_size=1, max_size=10)


def sequence_of(text: int) -> TokenSequence:
    return TokenSequence.of([text] * (1 + 23 * text))


class QueueMachine(RuleBasedStateMachine):
    """Admits, takes, finishes, fails, cancels and expires at random; mirrors what must be true."""

    @initialize()
    def start(self) -> None:
        # Clients that have left are looked for at once, though there are few.
        self.most_idle, line_module._MOST_IDLE_CLIENTS = line_module._MOST_IDLE_CLIENTS, 0
        self.queue = Queue(LIMITS, lambda tokens: tokens * 1e-2)
        pace = Pace(CostModel(0.0, 1e-3), narrow=1)
        self.forecast = Forecast(self.queue, MillConfig(batch=BATCHES), pace, cores=2)
        self.policy = Policy(BATCHES, self.forecast, pace)
        self.was_bulk = False
        self.now = 0.0
        self.admitted: list[QueuedRequest] = []
        self.running: list[list[Job]] = []
        self.cancelled: set[QueuedRequest] = set()

    def open_requests(self) -> list[QueuedRequest]:
        return [request for request in self.admitted if request.finished_at is None]

    @rule(
        texts=requests,
        priority=st.sampled_from(Priority),
        patience_s=st.floats(0.1, 20),
        client=st.sampled_from(["a", "b", None]),
        may_wait=st.booleans(),
    )
    def admit(
        self, texts: list[int], priority: Priority, patience_s: float, client: str | None, may_wait: bool
    ) -> None:
        sequences = [sequence_of(text) for text in texts]
        tokens = sum(map(len, sequences))
        before = (self.queue.waiting_texts, self.queue.waiting_tokens)
        own = [
            ticket.job.tokens
            for request in self.open_requests()
            for ticket in request.tickets
            if request.terms.client == client and ticket.state is TicketState.QUEUED
        ]
        most_texts, most_tokens = LIMITS.max_queue_texts, LIMITS.max_queue_tokens
        share = not own or (
            len(own) + len(texts) <= most_texts * 2 / 3 and sum(own) + tokens <= most_tokens * 2 / 3
        )
        room = self.queue.room_for(len(texts), tokens, client)
        if len(texts) > most_texts or tokens > most_tokens:
            assert room is Room.NEVER
        elif before[0] + len(texts) > most_texts or before[1] + tokens > most_tokens or not share:
            assert room is Room.FULL
        else:
            assert room is Room.FITS
            terms = Terms(priority, self.now + patience_s, client, may_wait)
            place = self.forecast.find_place(self.queue.costs_s(sequences), terms, self.now)
            assert place.delay_s >= 0
            terms = replace(terms, deadline=terms.deadline + place.extra_s)
            self.admitted.append(self.queue.admit(sequences, terms, self.now))
            assert all(other.terms.may_wait for other in place.later)
            self.queue.put_off(place.later, place.others_s)

    @precondition(lambda self: self.queue.work_texts and len(self.running) < 3)
    @rule(lanes=st.integers(1, 4), allow_long=st.booleans())
    def take(self, lanes: int, allow_long: bool) -> None:
        late = self.forecast.may_be_late(self.now)
        was_bulk = self.was_bulk  # of the last batch, however often nothing was found since
        present = [priority for priority, line in self.queue.lines.items() if line.jobs]
        jobs = self.policy.choose(self.queue, lanes=lanes, now=self.now, allow_long=allow_long)
        if not jobs:
            assert not allow_long
            assert all(is_long(job) for line in self.queue.lines.values() for job in line)
            return
        assert len(set(jobs)) == len(jobs)
        assert allow_long or not any(map(is_long, jobs))
        (priority,) = {job.home.terms.priority for job in jobs}
        self.was_bulk = priority is Priority.BULK
        limit = BATCHES.batch_tokens
        assert len(jobs) == 1 or sum(job.tokens for job in jobs) <= limit
        if allow_long:
            first = self.queue.lines[priority].first()
            assert jobs[0] is next(iter(first.waiting))
            assert not (late and len(present) > 1 and not was_bulk) or self.was_bulk
        self.queue.take(jobs, self.now)
        self.running.append(jobs)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 2), guilty=st.sets(texts, max_size=2))
    def finish(self, which: int, guilty: set[int]) -> None:
        for job in self.running.pop(which % len(self.running)):
            text = int(job.sequence.token_ids[0])
            open_before = {ticket.request for ticket in job.tickets}
            outcome = InferenceFailed("scripted") if text in guilty else np.full((1, 2), text, np.float32)
            ended = self.queue.finish(job, outcome, self.now)
            assert set(ended) <= open_before
            assert len(set(ended)) == len(ended)
            assert all(request.finished_at is not None for request in ended)

    @precondition(lambda self: self.open_requests())
    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        request = self.open_requests()[which % len(self.open_requests())]
        self.queue.cancel(request, self.now)
        self.cancelled.add(request)
        assert request.finished_at is not None

    @rule(passed_s=st.floats(0.01, 8))
    def let_time_pass(self, passed_s: float) -> None:
        self.now += passed_s
        due = {request for request in self.open_requests() if request.deadline <= self.now}
        assert set(self.queue.expire(self.now)) == due
        assert all(isinstance(request.error, DeadlineExceeded) for request in due)
        assert all(request.deadline > self.now for request in self.open_requests())

    @rule()
    def give_up_the_hopeless(self) -> None:
        hopeless = self.forecast.hopeless(self.now)
        assert all(request.terms.priority is Priority.BULK for request in hopeless)
        assert self.queue.give_up(hopeless, self.now) == hopeless
        assert all(request.finished_at == self.now for request in hopeless)

    @rule()
    def lose_everything(self) -> None:
        for request in self.queue.fail_all(InferenceFailed("lost"), self.now):
            assert request.error is not None

    @invariant()
    def rules_hold(self) -> None:
        check_queue(self.queue)

    @invariant()
    def every_row_is_its_own(self) -> None:
        for request in self.admitted:
            for ticket, row in zip(request.tickets, request.embeddings, strict=True):
                assert (row is not None) == (ticket.state is TicketState.DONE)
                if row is not None:
                    assert dense(row)[0, 0] == ticket.job.sequence.token_ids[0]

    @invariant()
    def answered_whole_or_with_an_error(self) -> None:
        for request in self.admitted:
            if request.finished_at is not None and request.error is None and request not in self.cancelled:
                assert all(ticket.state is TicketState.DONE for ticket in request.tickets)

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        line_module._MOST_IDLE_CLIENTS = self.most_idle
        while self.running:
            self.finish(0, set())
        while self.queue.work_texts:
            self.take(1, True)
            self.finish(0, set())
        check_queue(self.queue)
        assert self.queue.open_texts == self.queue.waiting_texts == self.queue.waiting_tokens == 0
        assert self.queue.counts.admitted == self.queue.counts.ended
        assert all(request.finished_at is not None for request in self.admitted)


@pytest.mark.parametrize("examples", [40, pytest.param(300, marks=pytest.mark.full)])
def test_the_rules_hold_in_any_order(examples: int) -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=examples, stateful_step_count=40))
