"""Asserts the rules of the batching queue, which its module docstring lists. Slow."""

from vecmill.batching.line import Line
from vecmill.batching.queue import Queue, _place
from vecmill.batching.ticket import TicketState


def check_queue(queue: Queue) -> None:
    """Assert every rule of `vecmill.batching.queue`."""
    for line in queue.lines.values():
        check_line(line)
    waiting = {job for line in queue.lines.values() for job in line}
    jobs = set(queue._jobs.values())
    tickets = [ticket for job in jobs for ticket in job.tickets]
    queued = [ticket for ticket in tickets if ticket.state is TicketState.QUEUED]
    assert waiting == {job for job in jobs if not job.running}
    assert all(job.tickets for job in waiting)
    for job in waiting:
        assert _place(job.home) == min(_place(ticket.request) for ticket in job.tickets)
    assert all(ticket.state is TicketState.RUNNING for ticket in tickets if ticket.job.running)
    assert all(ticket.state is TicketState.QUEUED for ticket in tickets if not ticket.job.running)
    assert queue.open_texts == len(tickets)
    assert queue.work_texts == len(waiting)
    assert queue.work_tokens == sum(job.tokens for job in waiting)
    own = queue.own_counts
    assert queue.counts.admitted + own.admitted == queue.counts.ended + own.ended + queue.open_texts
    assert sum(each.texts for each in queue._waiting_of.values()) == queue.waiting_texts
    assert queue.waiting_texts == len(queued) <= queue._config.max_queue_texts
    assert queue.waiting_tokens == sum(t.job.tokens for t in queued) <= queue._config.max_queue_tokens


def check_line(line: Line) -> None:
    """Assert that the indexes of a line agree."""
    jobs = list(line)
    by_length = [job for length in line._lengths for job in line._by_length[length]]
    assert set(jobs) == set(by_length)
    assert len(jobs) == len(by_length) == len(line)
    assert all(job.home is request for request in line.requests() for job in request.waiting)
    assert all(request.waiting for request in line.requests())
    assert line._order == sorted(line._order)
    assert all(job.tokens == length for length in line._lengths for job in line._by_length[length])
    assert line._lengths == sorted(line._by_length)
    assert line.tokens == sum(job.tokens for job in jobs)
    assert abs(line.waiting_s - sum(job.cost_s for job in jobs)) < 1e-6
    waiting = {request.terms.client for request in line.requests()}
    assert waiting == {name for name, each in line._clients.items() if each.requests}
    assert line._waiting_clients == len(waiting)
