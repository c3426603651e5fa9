"""Nobody with nothing waiting is refused because of one other client, whatever that one sends and claims."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from batching.simulation import OF_SERVER, Machine
from support.queue_rules import check_queue
from vecmill.batching.queue import CLIENT_SHARE
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.requests import Priority

SEED = 20261123
CLAIMS = (None, *Priority)
# Texts in a request and tokens in a text: a flood of small requests, long texts, one huge request, and any.
SHAPES = (((1, 1), (4, 60)), ((1, 4), (2_000, 8_192)), ((128, 256), (20, 2_048)), ((1, 64), (4, 512)))


def draw_config(draw: random.Random) -> MillConfig:
    """Return the default settings for every second machine, otherwise unusual ones."""
    if draw.random() < 0.5:
        return OF_SERVER
    return MillConfig(
        batch=BatchConfig(bulk_s=draw.choice((0.05, 0.5, 5.0)), interactive_weight=draw.choice((1, 4, 20))),
        queue=QueueConfig(
            target_wait_s=draw.choice((0.1, 2.0, 10.0)), timeout_s=draw.choice((1.0, 30.0, 300.0))
        ),
    )


def draw_lengths(draw: random.Random, config: MillConfig) -> list[int]:
    (fewest, most), (shortest, longest) = draw.choice(SHAPES)
    texts = round(2 ** draw.uniform(fewest.bit_length() - 1, most.bit_length() - 1))
    left, lengths = config.inputs.max_request_tokens, []
    for _ in range(texts):
        length = round(2 ** draw.uniform(shortest.bit_length() - 1, longest.bit_length() - 1))
        if length > left:
            break
        lengths.append(length)
        left -= length
    return lengths


@dataclass
class Mix:
    """A machine, the clients that load it, and newcomers that come in between."""

    draw: random.Random
    others: int

    def __post_init__(self) -> None:
        draw = self.draw
        self.config = draw_config(draw)
        self.machine = Machine(
            config=self.config,
            lanes=draw.choice((1, 2, 4, 16)),
            per_token_s=10 ** draw.uniform(-4, -2),
            pace_error=draw.choice((0.3, 1.0, 1.0, 3.0)),
        )
        self.claim = draw.choice(CLAIMS)

    def load(self, client: str) -> None:
        """Send some requests of a client that takes what it gets, and sometimes shortens its time limits."""
        machine, draw = self.machine, self.draw
        for _ in range(draw.randrange(1, 12)):
            claim = self.claim if draw.random() < 0.7 else draw.choice(CLAIMS)
            timeout_s = None if draw.random() < 0.7 else 10 ** draw.uniform(-1, 2)
            machine.ask(draw_lengths(draw, self.config), client, claim, timeout_s=timeout_s)

    def refusals(self) -> Iterator[str]:
        """Let the clients and newcomers come, and yield the names of newcomers that are refused."""
        for step in range(4):
            for number in range(self.others):
                self.load(f"other {number}")
            if self.draw.random() < 0.2:  # the machine becomes slower or faster
                for _ in range(10):
                    cost_s = self.machine.fixed_s + self.machine.seconds_of(100)
                    self.machine.pace.measure([100], 1, cost_s * 2 ** self.draw.uniform(-1, 3))
            # Once more by its name, when it has received something.
            name = self.draw.choice((f"newcomer {step}", "newcomer 0"))
            has_nothing = not any(line.waiting_s_of(name) for line in self.machine.queue.lines.values())
            delay_s = self.machine.ask(draw_lengths(self.draw, self.config), name, self.draw.choice(CLAIMS))
            if has_nothing and delay_s > 0:
                yield name
            self.machine.run(self.machine.now + self.draw.choice((0.0, 0.1, 1.0, 10.0)))

    def has_several(self) -> bool:
        """Return whether the clients without the one that has the most fill a good part of the room."""
        queue, limits = self.machine.queue, self.config.queue
        rate = self.machine.lanes / self.machine.pace.slowness
        for line, most_s in zip(queue.lines.values(), (limits.target_wait_s, limits.longest_s), strict=False):
            if line.waiting_s - line.most_waiting_s() > 0.1 * most_s * rate:
                return True
        return queue.waiting_tokens > CLIENT_SHARE * limits.max_queue_tokens


def check(mixes: range) -> None:
    print(f"seed {SEED}")
    for number in mixes:
        draw = random.Random(SEED + number)
        # One other client, which often has several requests of newcomers beside it; or several clients.
        mix = Mix(draw, others=1 if number % 4 else draw.randrange(2, 6))
        for name in mix.refusals():
            assert mix.has_several(), (number, name)
        check_queue(mix.machine.queue)


@pytest.mark.promise("nobody-shut-out")
@pytest.mark.parametrize("asked", CLAIMS)
def test_a_request_is_at_most_as_urgent_as_its_size_allows(asked: Priority | None) -> None:
    forecast = Machine().forecast
    large = Priority.BACKGROUND if asked is Priority.BACKGROUND else Priority.BULK
    assert forecast.choose_priority(0.51, asked) is large
    assert forecast.choose_priority(0.49, asked) is (asked or Priority.INTERACTIVE)


@pytest.mark.promise("nobody-shut-out", "interactive-first")
def test_a_text_waits_for_one_call_although_2048_texts_claim_to_be_interactive() -> None:
    machine = Machine()
    waited_s: list[float] = []
    assert machine.ask([200] * 2_048, "hostile", Priority.INTERACTIVE) == 0
    for second in range(1, 20):
        machine.run(float(second))
        began = machine.now

        def answered(request: QueuedRequest, began: float = began) -> None:
            assert request.error is None
            waited_s.append(machine.now - began)

        assert machine.ask([200], "other", then=answered) == 0
    machine.run(60.0)
    assert len(waited_s) == 19
    call_s = machine.fixed_s + 512 * machine.per_token_s * 1.2  # the longest call before it is a full batch
    assert max(waited_s) < call_s + machine.fixed_s + machine.seconds_of(200)


@pytest.mark.promise("nobody-shut-out")
@pytest.mark.parametrize("lengths", [[8] * 2_048, [8_192] * 24, [8]])
def test_one_client_cannot_fill_the_queue_with_work_that_has_time(lengths: list[int]) -> None:
    machine = Machine(per_token_s=1e-9, fixed_s=1e-9)  # so fast that only the size of the queue is a limit
    while machine.ask(lengths, "hostile", Priority.BACKGROUND) == 0:
        pass
    for priority in CLAIMS:
        assert machine.ask([200] * 100, f"other {priority}", priority) == 0
    assert machine.ask(lengths, "hostile", Priority.BACKGROUND) > 0


@pytest.mark.promise("nobody-shut-out", "deadlines-kept")
def test_what_goes_late_through_a_newcomer_gets_more_time() -> None:
    machine = Machine()
    ended: list[QueuedRequest] = []
    while machine.ask([200] * 256, "first", then=ended.append) == 0:
        pass
    accepted = machine.queue.lines[Priority.BULK].requests()
    before = {request: request.deadline for request in accepted}
    assert machine.ask([200] * 768, "newcomer", then=ended.append) == 0
    assert any(request.deadline > deadline for request, deadline in before.items())
    for number in range(20):  # another one each second, each with nothing waiting
        machine.ask([200] * 64, f"newcomer {number}", then=ended.append)
        machine.run(machine.now + 1.0)
    machine.run(machine.now + 600.0)
    assert len(ended) > len(before)
    assert [request.error for request in ended] == [None] * len(ended)


@pytest.mark.promise("nobody-shut-out")
def test_nobody_with_nothing_waiting_is_refused_because_of_one_other_client() -> None:
    check(range(24))


@pytest.mark.full
@pytest.mark.promise("nobody-shut-out")
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_nobody_is_refused_because_of_one_other_client_in_ten_thousand_mixes(first: int) -> None:
    check(range(first, first + 500))
