"""The search finds what trying everything would find, in time, and wastes none on what cannot be chosen."""

import itertools
import math
import statistics

import pytest

from support.landscape import InventedMachine, accuracy_of, search_space_of
from vecmill.commands.optimize.choice import Goal, Objective, choose, measure_noise
from vecmill.commands.optimize.measurements import Measurements
from vecmill.commands.optimize.search import FINAL_PASSES, NO_TIME, Search
from vecmill.errors import SetupError
from vecmill.serving_plan.plans import kind_of
from vecmill.values.engine_plan import Precision

SPACE = search_space_of()
LIMIT_S = 300.0


def search(machine: InventedMachine, goal: Goal | None = None, limit_s: float = LIMIT_S) -> Measurements:
    return Search(machine.space, machine, goal or Goal(), limit_s=limit_s, clock=machine.now).run()


@pytest.mark.parametrize("machines", [30, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize("objective", Objective)
def test_it_is_within_5_percent_of_trying_everything(objective: Objective, machines: int) -> None:
    goal = Goal(objective)
    losses = []
    for seed in range(machines):
        machine = InventedMachine(SPACE, seed)
        chosen = choose(search(machine, goal), goal)
        assert not chosen.is_too_noisy
        assert machine.accuracies[kind_of(chosen.plan)].worst_cosine >= goal.min_cosine
        losses.append(1 - math.exp(machine.true_score(goal, chosen.plan) - machine.best_score(goal)))
    # A measurement is off by 2% here, one way or the other, so now and then one is too good to be true.
    assert sum(loss > 0.05 for loss in losses) <= machines // 50
    assert statistics.median(losses) <= 0.01


def test_it_ends_in_time_however_short_that_is() -> None:
    for seed, limit_s in itertools.product(range(10), (30.0, 60.0, 120.0, 300.0)):
        machine = InventedMachine(SPACE, seed)
        search(machine, limit_s=limit_s)
        # The first group of engines has to be loaded in any case.
        assert machine.seconds <= max(limit_s, 60.0)


def test_engines_that_load_slowly_do_not_use_up_more_than_the_time() -> None:
    machine = InventedMachine(SPACE, 0, load_s=25.0)
    measured = search(machine)
    # A load that has begun goes on; the bench is what bounds a single one.
    assert machine.seconds <= LIMIT_S + 2 * machine.load_s
    untried = [plan for plan, why in measured.failures.items() if why == NO_TIME]
    assert untried
    assert {*measured.screenings, *untried} == set(SPACE.kinds)
    assert choose(measured, Goal()).plan not in untried


def test_what_remains_at_the_end_was_measured_often() -> None:
    machine = InventedMachine(SPACE, 1)
    measured = search(machine, limit_s=1000.0)
    chosen = choose(measured, Goal()).plan
    assert len(measured.ratios(chosen)) >= FINAL_PASSES
    assert chosen in measured.screenings  # loaded and checked as it is to be served


def test_what_is_not_accurate_is_measured_once_for_the_report() -> None:
    measured = search(InventedMachine(SPACE, 2))
    plans = [plan for done in measured.passes for plan in done.speeds]
    refused = [plan for plan in SPACE.kinds if plan.precision is Precision.INT8_FAST]
    assert refused
    assert set(refused) <= measured.screenings.keys()
    assert [plan for plan in plans if plan.precision is Precision.INT8_FAST] == refused


def test_what_cannot_be_loaded_is_named_and_the_rest_goes_on() -> None:
    failing = {
        kind_of(plan): "there is no such instruction" for plan in SPACE.kinds if plan.engine == "torch"
    }
    machine = InventedMachine(SPACE, 3, failing=failing)
    measured = search(machine)
    assert set(measured.failures.values()) == {"there is no such instruction"}
    assert choose(measured, Goal()).plan.engine != "torch"


def test_where_the_default_engine_fails_another_fp32_one_is_the_safe_plan() -> None:
    failing = {kind_of(plan): "no graph" for plan in SPACE.kinds if plan.engine == "onnx"}
    machine = InventedMachine(SPACE, 4, failing=failing)
    machine._safe = SPACE.safe_kinds[1]
    measured = search(machine)
    assert measured.safe == SPACE.safe_kinds[1]
    # It is named, and not loaded a second time.
    assert measured.failures[SPACE.safe_kinds[0]] == "no graph"
    assert machine.admitted.count(SPACE.safe_kinds[0]) == 1
    assert measured.safe.precision is Precision.FP32


def test_without_any_fp32_engine_there_is_nothing_to_compare_with() -> None:
    failing = {kind_of(plan): "no graph for it" for plan in SPACE.kinds}
    with pytest.raises(SetupError, match="no graph for it"):
        search(InventedMachine(SPACE, 5, failing=failing))


def test_more_accuracy_than_fp32_has_cannot_be_asked_for() -> None:
    machine = InventedMachine(SPACE, 6)
    machine.accuracies[kind_of(SPACE.safe_kinds[0])] = accuracy_of(0.9995)
    with pytest.raises(SetupError, match="as accurate as required"):
        search(machine, Goal(min_cosine=0.9999))


def test_a_restless_machine_is_told_from_a_drifting_one() -> None:
    verdicts = []
    for seed in range(10):
        machine = InventedMachine(SPACE, seed, noise=0.5)
        choice = choose(search(machine), Goal())
        verdicts.append(choice.is_too_noisy)
        # What is chosen all the same is better by far.
        assert choice.is_too_noisy or machine.true_score(Goal(), choice.plan) > 0.2
    assert any(verdicts)
    drifting = search(InventedMachine(SPACE, 7, noise=0.02, drift=0.02))
    assert measure_noise(drifting, Goal()) < 0.10


def test_every_step_is_announced() -> None:
    steps: list[str] = []
    machine = InventedMachine(SPACE, 8)
    measured = Search(SPACE, machine, Goal(), limit_s=LIMIT_S, clock=machine.now, on_step=steps.append).run()
    assert sum(step.startswith("pass") for step in steps) == len(measured.passes)
