"""Heavy use on a simulated machine: what is begun is finished, and what cannot be is refused at once."""

import functools
import random
import statistics
from dataclasses import dataclass, field

import numpy as np
import pytest

from batching.simulation import Machine
from support.queue_rules import check_queue
from vecmill.batching.policy import SHORT_CALL_S
from vecmill.batching.ticket import QueuedRequest
from vecmill.requests import Priority

SEED = 20261122


def mixed_lengths(seed: int, texts: int = 2_048) -> list[int]:
    drawn = np.random.default_rng(seed).lognormal(3.6, 0.9, texts)
    found: list[int] = drawn.clip(4, 256).round().astype(int).tolist()
    return found


# What single texts are drawn from.
LENGTHS = mixed_lengths(SEED)


@dataclass
class Client:
    """A client that sends requests one after the other, and comes back when it is told to."""

    machine: Machine
    name: str | None
    draw: random.Random
    texts: int = 2_048
    delivered: int = 0
    failed: int = 0
    waits_s: list[float] = field(default_factory=list)
    until_s: float = float("inf")

    def send(self) -> None:
        if self.machine.now >= self.until_s:
            return
        lengths = mixed_lengths(self.draw.randrange(2**30), self.texts)
        delay_s = self.machine.ask(lengths, self.name, then=self.receive)
        if delay_s > 0:
            wait_s = min(30.0, max(1.0, delay_s))  # as the header says it
            self.machine.at(self.machine.now + wait_s, self.send)

    def receive(self, request: QueuedRequest) -> None:
        if request.error is None:
            self.delivered += self.texts
            self.waits_s.append(self.machine.now - request.admitted_at)
        else:
            self.failed += 1
        self.machine.at(self.machine.now + 1e-3, self.send)


def run_clients(count: int, seconds: float = 60.0, *, names: bool, pace_error: float = 1.0) -> Machine:
    machine = Machine(pace_error=pace_error)
    draw = random.Random(SEED)
    clients = [
        Client(machine, f"client {number}" if names else None, random.Random(draw.random()), until_s=seconds)
        for number in range(count)
    ]
    for client in clients:
        client.send()
    machine.run(seconds)
    machine.delivered = sum(client.delivered for client in clients)  # type: ignore[attr-defined]
    machine.failed = sum(client.failed for client in clients)  # type: ignore[attr-defined]
    machine.run(10 * seconds)
    check_queue(machine.queue)
    return machine


@functools.cache
def deliver_to_one() -> int:
    """Return the texts that are delivered to a client that has the machine to itself."""
    return run_clients(1, names=False).delivered  # type: ignore[attr-defined,no-any-return]


@pytest.mark.promise("many-clients")
@pytest.mark.parametrize(
    ("count", "names"),
    [
        pytest.param(2, True, id="2-keys"),
        pytest.param(32, False, id="32-one key"),
        *(
            pytest.param(count, names, marks=pytest.mark.full)
            for count, names in ((2, False), (32, True), (4, False), (4, True), (8, False), (8, True))
        ),
    ],
)
def test_clients_of_2048_texts_are_answered_one_after_the_other(count: int, names: bool) -> None:
    machine = run_clients(count, names=names)
    assert machine.failed == 0  # type: ignore[attr-defined]
    assert machine.wasted <= 0.02 * machine.computed
    whole = 2_048  # what is computed in a request that is not finished yet is not delivered yet
    assert machine.delivered + whole >= 0.9 * deliver_to_one()  # type: ignore[attr-defined]


@pytest.mark.promise("many-clients")
@pytest.mark.parametrize("pace_error", [0.5, 1.5])
def test_a_wrong_pace_costs_little(pace_error: float) -> None:
    machine = run_clients(8, names=True, pace_error=pace_error)
    assert machine.wasted <= 0.02 * machine.computed


def test_one_request_longer_than_the_time_limit_gets_the_time_that_it_takes() -> None:
    machine = Machine()
    ended: list[QueuedRequest] = []
    assert machine.ask([256] * 2_048, then=ended.append) == 0
    machine.run(600.0)
    (request,) = ended
    assert request.error is None
    assert request.finished_at is not None
    assert request.finished_at > 30.0


@dataclass
class Singles:
    """Single texts that come at random, however long others wait."""

    machine: Machine
    rate: float
    until_s: float
    name: str | None = None
    latencies_s: list[float] = field(default_factory=list)
    asked: int = 0
    refused: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(SEED)
        self.machine.at(self.machine.now, self.arrive)

    def arrive(self) -> None:
        if self.machine.now >= self.until_s:
            return
        self.asked += 1
        lengths = [self.draw.choice(LENGTHS)]
        self.refused += self.machine.ask(lengths, self.name, then=self.receive) > 0
        self.machine.at(self.machine.now + self.draw.expovariate(self.rate), self.arrive)

    def receive(self, request: QueuedRequest) -> None:
        self.failed += request.error is not None
        if request.error is None:
            self.latencies_s.append(self.machine.now - request.admitted_at)


@pytest.mark.promise("goodput-kept", "short-wait")
@pytest.mark.parametrize("times", [2, *(pytest.param(times, marks=pytest.mark.full) for times in (3, 10))])
def test_single_texts_beyond_capacity_are_refused_and_the_others_answered_soon(times: int) -> None:
    machine = Machine()
    capacity = 2 / statistics.mean(map(machine.seconds_of, mixed_lengths(1)))
    singles = Singles(machine, times * capacity, until_s=60.0)
    machine.run(60.0)
    done = len(singles.latencies_s)
    assert singles.failed == 0
    assert done >= 0.95 * 60 * capacity * 0.97  # the fixed cost of calls is 3%
    assert statistics.median(singles.latencies_s) < 5.0
    assert max(singles.latencies_s) < 30.0
    machine.run(65.0)
    assert machine.queue.work_texts == 0


@pytest.mark.promise("interactive-first")
def test_single_texts_wait_for_two_calls_at_most_and_bulk_requests_keep_their_rate() -> None:
    def run(*, rate: float, bulk: bool) -> tuple[Singles, float]:
        machine = Machine()
        clients = [Client(machine, None, random.Random(n), texts=256, until_s=60.0) for n in range(4)]
        for client in clients if bulk else ():
            client.send()
        singles = Singles(machine, rate, until_s=60.0)
        machine.run(60.0)
        assert singles.refused == singles.failed == 0
        return singles, sum(client.delivered for client in clients) / 60.0

    def p99_s(singles: Singles) -> float:
        return sorted(singles.latencies_s)[int(0.99 * len(singles.latencies_s))]

    alone, _ = run(rate=10.0, bulk=False)
    _, bulk_alone = run(rate=0.001, bulk=True)
    beside, bulk_beside = run(rate=10.0, bulk=True)
    assert p99_s(beside) - p99_s(alone) <= 2 * SHORT_CALL_S
    assert bulk_beside >= 0.8 * bulk_alone


@pytest.mark.promise("fair-keys")
def test_single_texts_of_another_client_pass_bulk_requests() -> None:
    def median_s(with_bulk: bool) -> float:
        machine = Machine()
        if with_bulk:
            for number in range(32):
                Client(machine, "bulk", random.Random(number), until_s=30.0).send()
        singles = Singles(machine, 5.0, until_s=30.0, name="other")
        machine.run(30.0)
        assert singles.refused == singles.failed == 0
        return statistics.median(singles.latencies_s)

    alone = median_s(with_bulk=False)
    assert median_s(with_bulk=True) <= 3 * alone


@pytest.mark.promise("fair-keys")
def test_a_small_bulk_request_of_another_client_passes_large_ones() -> None:
    def median_s(with_bulk: bool) -> float:
        machine = Machine()
        if with_bulk:
            for number in range(32):
                Client(machine, "bulk", random.Random(number), until_s=30.0).send()
        machine.run(5.0)
        small = Client(machine, "other", random.Random(99), texts=200, until_s=30.0)
        small.send()
        machine.run(30.0)
        assert small.failed == 0
        return statistics.median(small.waits_s)

    assert median_s(with_bulk=True) <= 3 * median_s(with_bulk=False)


@pytest.mark.promise("fair-keys")
def test_a_flood_of_one_client_leaves_room_for_another() -> None:
    machine = Machine()
    Singles(machine, 2_000.0, until_s=7.0, name="flood")
    machine.run(2.0)
    polite = Singles(machine, 4.0, until_s=7.0, name="polite")
    machine.run(7.0)
    assert polite.refused == polite.failed == 0
    assert statistics.median(polite.latencies_s) < 0.3  # the call that runs, and its own


@pytest.mark.promise("no-starvation")
def test_long_texts_leave_a_lane_to_short_ones() -> None:
    machine = Machine()
    ended: list[QueuedRequest] = []
    for number in range(4):
        assert machine.ask([6_000], f"reader {number}", then=ended.append) == 0  # six seconds each
    singles = Singles(machine, 5.0, until_s=20.0, name="other")
    machine.run(20.0)
    assert max(singles.latencies_s) < 0.2
    machine.run(60.0)
    assert [request.error for request in ended] == [None] * 4


@pytest.mark.promise("no-starvation")
def test_background_work_never_counts_against_the_room_of_others() -> None:
    machine = Machine()
    for _ in range(2_000):
        assert machine.ask([100], "batch", Priority.BACKGROUND) == 0
    singles = Singles(machine, 5.0, until_s=20.0)
    machine.run(20.0)
    assert singles.refused == singles.failed == 0
    assert statistics.median(singles.latencies_s) < 0.1
