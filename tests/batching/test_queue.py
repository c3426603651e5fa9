"""The queue admits whole requests, joins equal texts, and ends each text once."""

import numpy as np
import pytest

from support.queue_rules import check_queue
from vecmill.batching import queue as queue_module
from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import OWN_WORK, CountsSnapshot, Job, QueuedRequest, Terms, TicketState
from vecmill.config import QueueConfig
from vecmill.errors import DeadlineExceeded, InferenceFailed
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence

ROW = np.ones((1, 2), np.float32)


def make_queue(**limits: int) -> Queue:
    return Queue(QueueConfig(**limits), lambda tokens: tokens * 1e-3)


def admit(
    queue: Queue,
    *texts: int,
    priority: Priority = Priority.INTERACTIVE,
    now: float = 0.0,
    deadline: float = 10.0,
    client: str | None = None,
) -> QueuedRequest:
    sequences = [TokenSequence.of([text] * 10) for text in texts]
    return queue.admit(sequences, Terms(priority, deadline, client), now)


def take_all(queue: Queue, now: float = 0.0) -> list[Job]:
    jobs = [job for line in queue.lines.values() for job in line]
    queue.take(jobs, now)
    return jobs


@pytest.mark.promise("all-or-nothing")
def test_a_request_fits_whole_or_not_at_all() -> None:
    queue = make_queue(max_queue_tokens=100, max_queue_texts=5)
    admit(queue, 1, 2, 3)
    assert queue.room_for(2, 70, "other") is Room.FITS
    assert queue.room_for(2, 71, "other") is Room.FULL
    assert queue.room_for(3, 30, "other") is Room.FULL
    assert queue.room_for(6, 60) is Room.NEVER
    assert queue.room_for(1, 101) is Room.NEVER


@pytest.mark.promise("nobody-shut-out")
def test_a_client_fills_two_thirds_of_the_queue_or_has_one_request_in_it() -> None:
    queue = make_queue(max_queue_tokens=99, max_queue_texts=9)
    assert queue.room_for(9, 99, "one") is Room.FITS
    admit(queue, 1, 2, 3, client="one")
    assert queue.room_for(3, 36, "one") is Room.FITS
    assert queue.room_for(3, 37, "one") is Room.FULL
    assert queue.room_for(4, 36, "one") is Room.FULL
    assert queue.room_for(6, 69, "other") is Room.FITS
    take_all(queue)
    assert queue.room_for(9, 99, "one") is Room.FITS


def test_what_the_server_computes_for_itself_is_not_counted_among_the_texts_of_clients() -> None:
    queue = make_queue()
    admit(queue, 1, client="one")
    admit(queue, 2, 3, client=OWN_WORK)
    assert queue.snapshot() == CountsSnapshot(admitted=1, open=1, waiting=1, waiting_tokens=10)


def test_room_comes_back_when_work_is_taken() -> None:
    queue = make_queue(max_queue_tokens=30)
    admit(queue, 1, 2, 3)
    assert queue.room_for(1, 10) is Room.FULL
    take_all(queue)
    assert queue.room_for(3, 30) is Room.FITS


@pytest.mark.promise("many-clients")
def test_equal_texts_are_computed_once_waiting_or_running() -> None:
    queue = make_queue()
    first = admit(queue, 1, 1)
    second = admit(queue, 1)
    (job,) = take_all(queue)
    third = admit(queue, 1)
    assert queue.work_texts == 0
    assert queue.finish(job, ROW, 1.0) == [first, second, third]
    assert queue.counts.joined == 3
    assert all(row is ROW for request in (first, second, third) for row in request.embeddings)


def test_a_prompt_of_another_length_is_another_text() -> None:
    queue = make_queue()
    sequences = [TokenSequence.of([1, 2, 3]), TokenSequence.of([1, 2, 3], prompt_length=1)]
    queue.admit(sequences, Terms(Priority.BULK, deadline=1), 0)
    assert len(take_all(queue)) == 2


def test_joined_texts_count_against_the_limits() -> None:
    queue = make_queue(max_queue_texts=3)
    admit(queue, 1, 1, 1)
    assert queue.room_for(1, 10) is Room.FULL


def test_an_interactive_text_pulls_the_bulk_job_it_joins_forward() -> None:
    queue = make_queue()
    admit(queue, 1, 2, priority=Priority.BULK)
    admit(queue, 2)
    assert [int(job.sequence.token_ids[0]) for job in queue.lines[Priority.INTERACTIVE]] == [2]
    assert len(queue.lines[Priority.BULK]) == 1


def test_a_bulk_text_pulls_the_patient_job_it_joins_forward_and_never_back() -> None:
    queue = make_queue()
    for priority in (Priority.BACKGROUND, Priority.BULK, Priority.BACKGROUND):
        admit(queue, 1, priority=priority)
    assert [len(queue.lines[priority]) for priority in Priority] == [0, 1, 0]


def test_one_failure_ends_its_request_and_nobody_elses() -> None:
    queue = make_queue()
    request, bystander = admit(queue, 1, 2), admit(queue, 3)
    jobs = take_all(queue)
    error = InferenceFailed("scripted")
    assert queue.finish(jobs[0], error, 1.0) == [request]
    assert request.error is error
    assert [ticket.state for ticket in request.tickets] == [TicketState.FAILED, TicketState.CANCELLED]
    assert queue.finish(jobs[1], ROW, 1.0) == []
    assert queue.finish(jobs[2], ROW, 1.0) == [bystander]


def test_a_failure_shared_by_two_texts_of_a_request_ends_it_once() -> None:
    queue = make_queue()
    request = admit(queue, 1, 1)
    (job,) = take_all(queue)
    assert queue.finish(job, InferenceFailed("scripted"), 1.0) == [request]
    check_queue(queue)


def test_cancelled_texts_leave_the_line_at_once() -> None:
    queue = make_queue()
    request = admit(queue, 1, 2)
    admit(queue, 2)
    queue.cancel(request, 1.0)
    assert [int(job.sequence.token_ids[0]) for job in queue.lines[Priority.INTERACTIVE]] == [2]
    assert queue.counts.cancelled == 2


@pytest.mark.promise("deadlines-kept")
def test_what_is_overdue_never_runs() -> None:
    queue = make_queue()
    request = admit(queue, 1, deadline=5.0)
    assert queue.expire(4.999) == []
    assert queue.expire(5.0) == [request]
    assert isinstance(request.error, DeadlineExceeded)
    assert "was not there within 5 s" in request.error.message
    assert queue.work_texts == 0


def test_a_row_that_comes_after_the_deadline_is_dropped() -> None:
    queue = make_queue()
    request = admit(queue, 1, deadline=5.0)
    (job,) = take_all(queue)
    assert queue.expire(6.0) == [request]
    assert queue.finish(job, ROW, 7.0) == []
    assert request.embeddings == [None]
    assert queue.counts.expired == 1


def test_ended_requests_do_not_pile_up_behind_their_deadlines() -> None:
    queue = make_queue()
    for text in range(1_000):
        queue.cancel(admit(queue, text, deadline=1e9), 0.0)
    assert len(queue._deadlines) <= 66


@pytest.mark.promise("answered-once")
def test_a_final_state_is_final() -> None:
    queue = make_queue()
    request = admit(queue, 1)
    queue.cancel(request, 0.0)
    with pytest.raises(AssertionError, match="cannot go cancelled -> done"):
        request.tickets[0].move(TicketState.DONE)


def test_a_text_waits_in_the_first_request_that_needs_it_and_stays_when_that_one_goes() -> None:
    queue = make_queue()
    bulk = admit(queue, 1, 2, priority=Priority.BULK)
    first, second = admit(queue, 2), admit(queue, 2)
    (job,) = queue.lines[Priority.INTERACTIVE]
    assert job.home is first
    queue.cancel(first, 1.0)
    assert job.home is second
    queue.cancel(second, 1.0)
    assert job.home is bulk
    check_queue(queue)


def test_a_request_that_shares_all_its_texts_costs_nothing_more() -> None:
    queue = make_queue()
    admit(queue, 1, 2)
    sequences = [TokenSequence.of([text] * 10) for text in (2, 3, 3)]
    assert queue.costs_s(sequences) == pytest.approx([0.0, 0.01, 0.0])


def test_requests_of_one_client_take_turns_with_those_of_another() -> None:
    queue = make_queue()
    for text in range(6):
        admit(queue, text, client="many")
    admit(queue, 10, client="few")
    admit(queue, 11, client="few")
    clients = [request.terms.client for request in queue.lines[Priority.INTERACTIVE].requests()]
    assert clients[:4] == ["many", "few", "many", "few"]


def test_a_large_request_that_has_begun_is_not_overtaken_by_another_large_one() -> None:
    queue = make_queue()
    first = admit(queue, *range(100), priority=Priority.BULK, client="a")
    second = admit(queue, *range(100, 200), priority=Priority.BULK, client="b")
    small = admit(queue, 300, priority=Priority.BULK, client="c")
    line = queue.lines[Priority.BULK]
    assert list(line.requests()) == [small, first, second]
    queue.take(list(first.waiting)[:50], 1.0)
    third = admit(queue, *range(400, 490), priority=Priority.BULK, client="d")
    assert list(line.requests()) == [small, first, second, third]


def test_texts_that_are_given_up_do_not_count_against_their_client() -> None:
    queue = make_queue()
    line = queue.lines[Priority.BULK]
    fresh = line.tag_for("a", 0.5)
    queue.cancel(admit(queue, *range(100), priority=Priority.BULK, client="a"), 1.0)
    assert line.tag_for("a", 0.5) == pytest.approx(fresh)


def test_clients_that_left_are_forgotten() -> None:
    queue = make_queue()
    line = queue.lines[Priority.INTERACTIVE]
    for text in range(1_000):
        admit(queue, text, client=str(text))
        queue.take(list(line), 0.0)
    assert len(line._clients) <= 70


def take_first(queue: Queue) -> None:
    queue.take([next(iter(queue.lines[Priority.INTERACTIVE].first().waiting))], 0.0)


def test_clients_that_left_are_forgotten_while_others_wait() -> None:
    queue = make_queue()
    for text in range(5_000):
        admit(queue, text, client=str(text))
        if text >= 50:
            take_first(queue)
    assert len(queue.lines[Priority.INTERACTIVE]._clients) <= 300


def test_a_client_that_comes_back_goes_behind_those_that_came_before_it() -> None:
    queue = make_queue()
    admit(queue, 1, client="one")
    others = admit(queue, *range(2, 8), client="other")
    for _ in range(4):
        take_first(queue)
    first, back = admit(queue, 8, client="new"), admit(queue, 9, client="one")
    assert list(queue.lines[Priority.INTERACTIVE].requests()) == [others, first, back]


def test_clients_that_come_without_end_leave_a_turn_to_a_client_with_two_requests() -> None:
    queue = make_queue()
    admit(queue, 0, client="two")
    second = admit(queue, 1, client="two")
    for text in range(2, 32):
        admit(queue, text, client=str(text))
    taken = 0
    while second.started_at is None and taken < 1_000:
        take_first(queue)
        taken += 1
        admit(queue, 100 + taken, client=str(100 + taken))
    assert taken <= 100  # two rounds of the clients that wait, with some room


def test_many_requests_for_one_text_expire_together_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue()
    count = 2_000
    for number in range(count):
        admit(queue, 1, client=str(number))
    places = 0
    plain = queue_module._place

    def counted(request: QueuedRequest) -> tuple[int, float, int]:
        nonlocal places
        places += 1
        return plain(request)

    monkeypatch.setattr(queue_module, "_place", counted)
    assert len(queue.expire(10.0)) == count
    assert places <= count


def test_the_cost_of_each_length_is_predicted_once_a_request() -> None:
    predicted: list[int] = []

    def text_s(tokens: int) -> float:
        predicted.append(tokens)
        return tokens * 1e-3

    queue = Queue(QueueConfig(), text_s)
    sequences = [TokenSequence.of([text] * (1 + text % 3)) for text in range(100)]
    queue.admit(sequences, Terms(Priority.BULK, 1.0), 0.0, queue.costs_s(sequences))
    assert sorted(predicted) == [1, 2, 3]
    assert queue.lines[Priority.BULK].waiting_s == pytest.approx(sum(map(len, sequences)) * 1e-3)
    check_queue(queue)


def test_joining_and_leaving_does_not_clear_the_account_of_a_client() -> None:
    queue = make_queue()
    line = queue.lines[Priority.BULK]
    admit(queue, *range(100), priority=Priority.BULK, client="a")
    admit(queue, 200, priority=Priority.BULK, client="b")
    tag = line.tag_for("a", 0.5)
    queue.cancel(admit(queue, *range(100), client="a"), 1.0)
    assert line.tag_for("a", 0.5) == pytest.approx(tag)


def test_a_text_that_many_clients_wait_for_survives_the_client_that_asked_first() -> None:
    queue = make_queue()
    first, *others = (admit(queue, 1, client=str(number)) for number in range(100))
    queue.cancel(first, 1.0)
    check_queue(queue)
    (job,) = take_all(queue)
    assert queue.finish(job, ROW, 2.0) == others
