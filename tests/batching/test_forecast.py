"""Accepted requests are ended early only if the machine has become slower for good."""

import pytest

from batching.simulation import Machine
from vecmill.batching.ticket import QueuedRequest

STALL_S = 1.9  # a stop of the process that the running clock does not notice


def fill(machine: Machine) -> list[QueuedRequest]:
    """Admit bulk requests of about four seconds until one is refused."""
    ended: list[QueuedRequest] = []
    number = 0
    while machine.ask([200] * 75 * machine.lanes, f"client {number}", then=ended.append) == 0:
        number += 1
    assert number > 3
    return ended


def measure(machine: Machine, times: float, calls: int) -> None:
    for _ in range(calls):
        machine.pace.measure([200], 1, times * (machine.fixed_s + machine.seconds_of(200)))


@pytest.mark.parametrize("lanes", [2, 8])
def test_a_stall_of_all_lanes_ends_no_accepted_request(lanes: int) -> None:
    machine = Machine(lanes=lanes)
    fill(machine)
    for _ in range(lanes):
        machine.pace.measure([200], 1, STALL_S)
    assert machine.pace.slowness > 5.0
    assert machine.forecast.hopeless(machine.now) == []


def test_everything_accepted_is_answered_though_calls_stall_now_and_then() -> None:
    machine = Machine()
    ended = fill(machine)
    for second in range(1, 30, 3):
        machine.at(second, lambda: machine.pace.measure([200], 1, STALL_S))
    machine.run(120.0)
    assert ended
    assert [request.error for request in ended] == [None] * len(ended)


def test_a_machine_that_stays_ten_times_slower_ends_what_it_cannot_answer_before_it_begins() -> None:
    machine = Machine()
    fill(machine)
    measure(machine, 10.0, calls=100)
    waiting = list(machine.forecast.hopeless(machine.now))
    assert waiting
    machine.queue.give_up(waiting, machine.now)
    assert "has become too slow" in str(waiting[0].error)
    assert machine.forecast.hopeless(machine.now) == []


def test_a_request_that_has_begun_is_not_given_up() -> None:
    machine = Machine()
    assert machine.ask([200] * 150) == 0
    (begun,) = machine.ended
    measure(machine, 20.0, calls=100)
    assert machine.forecast.hopeless(machine.now) == [begun]
    machine.queue.take([next(iter(begun.waiting))], machine.now)
    assert machine.forecast.hopeless(machine.now) == []


def test_work_that_is_given_up_no_longer_delays_the_work_behind_it() -> None:
    machine = Machine()
    assert machine.ask([200] * 150, "a client") == machine.ask([200] * 20, "a client") == 0
    long, short = machine.ended
    measure(machine, 20.0, calls=100)
    assert long.tag < short.tag
    assert machine.forecast.hopeless(machine.now) == [long]
