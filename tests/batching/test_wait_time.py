"""How long waiting texts take: what is predicted for all models together is what texts wait.

The metrics, the console, the autoscaler and the alerts read this prediction alone.
"""

from functools import partial

import pytest

from batching.shared_machine import SharedMachine, SharedModel
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.wait_time import MOST_S
from vecmill.values.engine_plan import CostModel
from vecmill.values.waiting_work import WaitingWork

# The mean predicted wait is the mean measured wait, within this factor.
WITHIN = 1.25


def make_model(
    per_token_s: float = 2.5e-4,
    *,
    error: float = 1.0,
    clients: int = 64,
    tokens: int = 100,
    gap_s: float = 0.0,
    weight: float = 1.0,
    fixed_s: float = 5e-4,
) -> SharedModel:
    measured = CostModel(fixed_s * error, per_token_s * error)
    return SharedModel(fixed_s, per_token_s, measured, clients, tokens, weight, gap_s=gap_s)


@pytest.mark.parametrize(
    "models",
    [
        [make_model()],
        [make_model(error=0.1)],
        [make_model(error=3.0)],
        [make_model(gap_s=0.05)],
        [make_model(fixed_s=0.1, tokens=20)],
        [make_model(), make_model()],
        [make_model(error=0.2), make_model(1e-3, error=2.0)],
        [make_model(gap_s=0.05), make_model(gap_s=0.02)],
        [make_model(weight=3.0), make_model(tokens=300)],
    ],
)
def test_the_predicted_wait_is_what_texts_wait(models: list[SharedModel]) -> None:
    predicted_s, measured_s = SharedMachine(models).waits(5.0, 15.0)
    assert measured_s > 0.05
    assert 1 / WITHIN < predicted_s / measured_s < WITHIN


class Texts:
    """Waiting work of models, by hand."""

    def __init__(self, cores: int, *waiting: WaitingWork) -> None:
        self.now = 0.0
        self.budget = CoreBudget(cores, clock=lambda: self.now)
        self.waiting = list(waiting)
        self.members = [
            self.budget.join(
                lambda: True, clock=lambda: self.now, waiting=partial(self.waiting.__getitem__, n)
            )
            for n in range(len(waiting))
        ]

    def parts_s(self) -> list[float]:
        return [self.budget.wait_time.part_s(member) for member in self.members]

    def call(self, seconds: float, cost_s: float) -> None:
        with self.budget.lock:
            taken = self.budget.take(1, self.members[0], cost_s, cost_s=cost_s)
            self.now += seconds
            self.budget.give_back(taken)


def test_the_parts_of_the_models_add_up_to_one_time() -> None:
    texts = Texts(2, WaitingWork(3.0, 2), WaitingWork(1.0, 2), WaitingWork(0.0, 2))
    assert texts.parts_s() == pytest.approx([1.5, 0.5, 0.0])
    assert texts.budget.wait_time.whole_s() == pytest.approx(2.0)
    texts.budget.leave(texts.members[0])
    assert texts.budget.wait_time.whole_s() == pytest.approx(0.5)


def test_a_model_with_few_lanes_does_not_compute_on_all_cores() -> None:
    assert Texts(16, WaitingWork(3.0, 1), WaitingWork(1.0, 16)).budget.wait_time.whole_s() == pytest.approx(
        4.0 / (4 / 3)
    )
    assert Texts(16, WaitingWork(0.1, 1), WaitingWork(32.0, 16)).budget.wait_time.whole_s() == pytest.approx(
        32.1 / 16
    )


def test_the_observed_speed_counts() -> None:
    texts = Texts(1, WaitingWork(1.0, 1))
    for _ in range(40):
        texts.call(1.0, cost_s=0.25)
    assert texts.budget.wait_time.whole_s() == pytest.approx(4.0, rel=0.05)
    for _ in range(40):
        texts.call(1.0, cost_s=1.0)
    assert texts.budget.wait_time.whole_s() == pytest.approx(1.0, rel=0.05)


def test_time_without_waiting_texts_says_nothing_about_the_speed() -> None:
    texts = Texts(1, WaitingWork(0.0, 1))
    for _ in range(40):
        texts.call(1.0, cost_s=0.1)
    texts.waiting[0] = WaitingWork(1.0, 1)
    assert texts.budget.wait_time.whole_s() == pytest.approx(1.0)


def test_a_call_of_an_idle_model_reads_the_waiting_work_twice_under_the_lock() -> None:
    """At its begin and at its end. Requests wait for the lock meanwhile."""
    read = 0

    def waiting() -> WaitingWork:
        nonlocal read
        read += 1
        return WaitingWork(0.0, 1)

    budget = CoreBudget(1)
    condition = budget.join(lambda: True, waiting=waiting)
    with budget.lock:
        budget.give_back(budget.take(1, condition, 1.0, cost_s=1.0))
    assert read == 2


def test_a_process_that_stood_still_is_not_slow_for_long() -> None:
    texts = Texts(1, WaitingWork(1.0, 1))
    for _ in range(40):
        texts.call(1.0, cost_s=1.0)
    texts.call(3600.0, cost_s=1.0)
    assert texts.budget.wait_time.whole_s() < 1.0 + MOST_S / 2
    for _ in range(20):
        texts.call(1.0, cost_s=1.0)
    assert texts.budget.wait_time.whole_s() == pytest.approx(1.0, rel=0.1)
