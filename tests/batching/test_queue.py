"""The queue admits whole requests, joins equal texts, and ends each text once."""

import numpy as np
import pytest

from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import Job, QueuedRequest, TicketState
from vecmill.config import QueueConfig
from vecmill.errors import DeadlineExceeded, InferenceFailed
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence

ROW = np.ones((1, 2), np.float32)


def admit(
    queue: Queue,
    *texts: int,
    priority: Priority = Priority.INTERACTIVE,
    now: float = 0.0,
    deadline: float = 10.0,
) -> QueuedRequest:
    return queue.admit(
        [TokenSequence.of([text] * 10) for text in texts], priority=priority, now=now, deadline=deadline
    )


def take_all(queue: Queue, now: float = 0.0) -> list[Job]:
    jobs = [job for line in queue.wait_lists.values() for job in line]
    queue.take(jobs, now)
    return jobs


@pytest.mark.promise("all-or-nothing")
def test_a_request_fits_whole_or_not_at_all() -> None:
    queue = Queue(QueueConfig(max_queue_tokens=100, max_queue_texts=5))
    admit(queue, 1, 2, 3)
    assert queue.room_for(2, 70) is Room.FITS
    assert queue.room_for(2, 71) is Room.FULL
    assert queue.room_for(3, 30) is Room.FULL
    assert queue.room_for(6, 60) is Room.NEVER
    assert queue.room_for(1, 101) is Room.NEVER


def test_room_comes_back_when_work_is_taken() -> None:
    queue = Queue(QueueConfig(max_queue_tokens=30))
    admit(queue, 1, 2, 3)
    assert queue.room_for(1, 10) is Room.FULL
    take_all(queue)
    assert queue.room_for(3, 30) is Room.FITS


@pytest.mark.promise("many-clients")
def test_equal_texts_are_computed_once_waiting_or_running() -> None:
    queue = Queue(QueueConfig())
    first = admit(queue, 1, 1)
    second = admit(queue, 1)
    (job,) = take_all(queue)
    third = admit(queue, 1)
    assert queue.is_empty
    assert queue.finish(job, ROW, 1.0) == [first, second, third]
    assert queue.counts.joined == 3
    assert all(row is ROW for request in (first, second, third) for row in request.embeddings)


def test_a_prompt_of_another_length_is_another_text() -> None:
    queue = Queue(QueueConfig())
    sequences = [TokenSequence.of([1, 2, 3]), TokenSequence.of([1, 2, 3], prompt_length=1)]
    queue.admit(sequences, priority=Priority.BULK, now=0, deadline=1)
    assert len(take_all(queue)) == 2


def test_joined_texts_count_against_the_limits() -> None:
    queue = Queue(QueueConfig(max_queue_texts=3))
    admit(queue, 1, 1, 1)
    assert queue.room_for(1, 10) is Room.FULL


def test_an_interactive_text_pulls_the_bulk_job_it_joins_forward() -> None:
    queue = Queue(QueueConfig())
    admit(queue, 1, 2, priority=Priority.BULK)
    admit(queue, 2)
    assert [int(job.sequence.token_ids[0]) for job in queue.wait_lists[Priority.INTERACTIVE]] == [2]
    assert len(queue.wait_lists[Priority.BULK]) == 1


def test_a_bulk_text_pulls_the_patient_job_it_joins_forward_and_never_back() -> None:
    queue = Queue(QueueConfig())
    for priority in (Priority.BACKGROUND, Priority.BULK, Priority.BACKGROUND):
        admit(queue, 1, priority=priority)
    assert [len(queue.wait_lists[priority]) for priority in Priority] == [0, 1, 0]


def test_one_failure_ends_its_request_and_nobody_elses() -> None:
    queue = Queue(QueueConfig())
    request, bystander = admit(queue, 1, 2), admit(queue, 3)
    jobs = take_all(queue)
    error = InferenceFailed("scripted")
    assert queue.finish(jobs[0], error, 1.0) == [request]
    assert request.error is error
    assert [ticket.state for ticket in request.tickets] == [TicketState.FAILED, TicketState.CANCELLED]
    assert queue.finish(jobs[1], ROW, 1.0) == []
    assert queue.finish(jobs[2], ROW, 1.0) == [bystander]


def test_a_failure_shared_by_two_texts_of_a_request_ends_it_once() -> None:
    queue = Queue(QueueConfig())
    request = admit(queue, 1, 1)
    (job,) = take_all(queue)
    assert queue.finish(job, InferenceFailed("scripted"), 1.0) == [request]
    queue.check()


def test_cancelled_texts_leave_the_line_at_once() -> None:
    queue = Queue(QueueConfig())
    request = admit(queue, 1, 2)
    admit(queue, 2)
    queue.cancel(request, 1.0)
    assert [int(job.sequence.token_ids[0]) for job in queue.wait_lists[Priority.INTERACTIVE]] == [2]
    assert queue.counts.cancelled == 2


@pytest.mark.promise("deadlines-kept")
def test_what_is_overdue_never_runs() -> None:
    queue = Queue(QueueConfig())
    request = admit(queue, 1, deadline=5.0)
    assert queue.expire(4.999) == []
    assert queue.expire(5.0) == [request]
    assert isinstance(request.error, DeadlineExceeded)
    assert queue.is_empty


def test_a_row_that_comes_after_the_deadline_is_dropped() -> None:
    queue = Queue(QueueConfig())
    request = admit(queue, 1, deadline=5.0)
    (job,) = take_all(queue)
    assert queue.expire(6.0) == [request]
    assert queue.finish(job, ROW, 7.0) == []
    assert request.embeddings == [None]
    assert queue.counts.expired == 1


def test_ended_requests_do_not_pile_up_behind_their_deadlines() -> None:
    queue = Queue(QueueConfig())
    for text in range(1_000):
        queue.cancel(admit(queue, text, deadline=1e9), 0.0)
    assert len(queue._deadlines) <= 66


@pytest.mark.promise("answered-once")
def test_a_final_state_is_final() -> None:
    queue = Queue(QueueConfig())
    request = admit(queue, 1)
    queue.cancel(request, 0.0)
    with pytest.raises(AssertionError, match="cannot go cancelled -> done"):
        request.tickets[0].move(TicketState.DONE)
