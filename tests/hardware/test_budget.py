"""Cores go to the model that has used the fewest core seconds for its weight."""

import threading
from dataclasses import dataclass, field

import pytest

from vecmill.hardware.budget import CoreBudget, TakenCores


@dataclass
class Models:
    """Models that share cores, a clock, and whether each wants a core."""

    budget: CoreBudget
    now: float = 0.0
    wants: dict[str, bool] = field(default_factory=dict)
    conditions: dict[str, threading.Condition] = field(default_factory=dict)

    def add(self, *names: str, wants: bool = True, weight: float = 1.0) -> None:
        for name in names:
            self.wants[name] = wants
            self.conditions[name] = self.budget.join(
                lambda name=name: self.wants[name],  # type: ignore[misc]
                weight=weight,
                clock=lambda: self.now,
            )

    def may_take(self, name: str) -> bool:
        return self.budget.may_take(1, self.conditions[name])

    def begin(self, name: str, predicted_s: float = 0.0, *, borrowed: int = 0) -> TakenCores:
        return self.budget.take(1, self.conditions[name], predicted_s, borrowed=borrowed)

    def call(self, name: str, seconds: float, predicted_s: float = 0.0) -> None:
        taken = self.begin(name, predicted_s)
        self.now += seconds
        self.budget.give_back(taken)

    def order(self, calls: int, seconds: dict[str, float]) -> str:
        """Return which models were called, one letter each, if each call takes so long."""
        found = ""
        for _ in range(calls):
            name = next(name for name in seconds if self.may_take(name))
            found += name
            self.call(name, seconds[name])
        return found


def test_a_budget_never_gives_more_than_it_has() -> None:
    budget = CoreBudget(3)
    condition = budget.join(lambda: True)
    with budget.lock:
        assert budget.may_take(2, condition)
        taken = budget.take(2, condition, 0.1)
        assert not budget.may_take(2, condition)
        budget.take(1, condition, 0.1)
        budget.give_back(taken)
    assert budget.free == 2


def test_cores_go_to_the_model_that_has_used_least() -> None:
    models = Models(CoreBudget(1))
    models.add("a", "b")
    with models.budget.lock:
        assert models.order(6, {"a": 3.0, "b": 1.0}) == "abbbab"


def test_the_measured_time_counts_and_not_the_prediction() -> None:
    models = Models(CoreBudget(1))
    models.add("a", "b")
    with models.budget.lock:
        models.call("a", 1.0, predicted_s=50.0)
        models.call("b", 2.0, predicted_s=0.0)
        assert not models.may_take("b")
        assert models.may_take("a")


def test_a_model_with_twice_the_weight_gets_twice_the_core_seconds() -> None:
    models = Models(CoreBudget(1))
    models.add("a", weight=2.0)
    models.add("b")
    with models.budget.lock:
        found = models.order(300, {"a": 1.0, "b": 1.0})
    assert found.count("a") == 200


def test_a_running_call_counts_as_long_as_it_runs() -> None:
    models = Models(CoreBudget(3))
    models.add("a", "b")
    with models.budget.lock:
        models.begin("a", predicted_s=0.1)
        models.begin("b", predicted_s=1.0)
        assert models.may_take("a"), "the shorter call is the one of a"
        models.now += 10.0  # both calls hang: the predictions do not matter any more
        models.call("a", 1.0)
        assert models.may_take("b")
        assert not models.may_take("a")


def test_borrowed_cores_count() -> None:
    models = Models(CoreBudget(2))
    models.add("a", "b")
    with models.budget.lock:
        wide, narrow = models.begin("a", borrowed=1), models.begin("b")
        models.now += 1.0
        models.budget.give_back(wide)
        models.budget.give_back(narrow)
        assert models.may_take("b")
        assert not models.may_take("a")


def test_only_models_with_work_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    models = Models(CoreBudget(2))
    models.add("idle", wants=False)
    models.add("waiting")
    woken: list[str] = []
    for name, condition in models.conditions.items():
        monkeypatch.setattr(condition, "notify", lambda name=name: woken.append(name))
    with models.budget.lock:
        models.budget.give_back(models.begin("waiting"))
    assert woken == ["waiting"]


def test_a_model_without_work_gets_no_credit() -> None:
    models = Models(CoreBudget(1))
    models.add("a")
    models.add("b", wants=False)
    with models.budget.lock:
        for _ in range(5):
            models.call("a", 1.0)
        models.wants["b"] = True
        models.call("b", 1.0)
        assert models.may_take("a")


def test_a_model_that_joins_later_gets_no_credit_either() -> None:
    models = Models(CoreBudget(1))
    models.add("a")
    with models.budget.lock:
        models.call("a", 100.0)
        models.add("b")
        assert models.order(4, {"a": 1.0, "b": 1.0}).count("a") == 2


def test_a_model_that_joins_beside_a_long_call_waits_for_no_more_than_its_turn() -> None:
    models = Models(CoreBudget(2))
    models.add("long")
    models.add("short")
    with models.budget.lock:
        models.wants["long"] = False
        models.begin("long", predicted_s=20.0)
        models.add("new")
        assert models.may_take("new")


def test_cores_are_held_for_work_beside_the_lanes_when_it_is_its_turn() -> None:
    """A warm-up of another model begins between two calls, and no call begins on its cores."""
    models = Models(CoreBudget(2))
    models.add("a")
    held, go_on = threading.Event(), threading.Event()

    def warm_up() -> None:
        with models.budget.hold(2):
            held.set()
            go_on.wait()

    with models.budget.lock:
        first, second = models.begin("a"), models.begin("a")
    thread = threading.Thread(target=warm_up)
    thread.start()
    while len(models.budget._members) == 1:  # until it waits
        pass
    with models.budget.lock:
        models.budget.give_back(first)
        assert not models.may_take("a"), "a call would keep the wider one waiting for ever"
        models.budget.give_back(second)
    assert held.wait(60)
    assert models.budget.free == 0
    go_on.set()
    thread.join()
    with models.budget.lock:
        assert models.may_take("a")
    assert models.budget.free == 2
