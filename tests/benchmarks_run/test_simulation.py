"""The simulated process takes the time that its machine says, and answers what it admits."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.simulation.fitting import fit_calls, fit_python
from bench.simulation.loads import MIXED, PASSAGES, QUERIES, Load, Stream, arriving, closed, uniform
from bench.simulation.machine import CallCost, Machine, PythonCost
from bench.simulation.measured import MeasuredCall, MeasuredRun
from bench.simulation.process import SimulatedProcess
from bench.simulation.scale import CORES, LOADS, machine_of, simulate_scale

CALL = CallCost(1e-3, 1e-4, 2e-8)
PYTHON = PythonCost(4e-4, 3e-4)
ONE_CORE = Machine(1, CALL, PYTHON)
SEED = 7


def test_a_lone_request_takes_its_python_code_and_its_call() -> None:
    text = closed("one", uniform(1, 100, 100), 1)
    found = SimulatedProcess(ONE_CORE, text, seed=SEED).run(5.0, warm_up_s=0.0)
    # Half of the loop's time, the wake-up, half a turn; the call; a turn, and half of the loop's time again.
    expected_s = PYTHON.request_s + PYTHON.wake_s + 1.5 * PYTHON.turn_s + CALL.seconds([100], 1)
    assert found.percentile_s(50) == pytest.approx(expected_s, rel=1e-6)
    assert found.percentile_s(99) == pytest.approx(expected_s, rel=1e-6)


def test_cores_compute_at_most_all_of_the_time() -> None:
    for cores in (1, 2, 8):
        machine = replace(ONE_CORE, cores=cores)
        found = SimulatedProcess(machine, closed("bulk", PASSAGES, 4 * cores), seed=SEED).run(4.0)
        assert 0.9 * cores < found.busy_core_s / found.seconds <= cores
        least_s = 16 * CALL.seconds([160], 1)  # of a request, about
        assert found.requests / found.seconds < 1.2 * cores / least_s


def test_two_cores_answer_almost_twice_as_much_in_bulk() -> None:
    one, two = (
        SimulatedProcess(replace(ONE_CORE, cores=cores), closed("bulk", PASSAGES, 8), seed=SEED).run(10.0)
        for cores in (1, 2)
    )
    assert 1.8 < two.texts / one.texts < 2.1


def test_every_request_that_arrives_is_answered_or_refused() -> None:
    load = Load("both", (Stream("queries", QUERIES, rate=100.0), Stream("mixed", MIXED, clients=3)))
    process = SimulatedProcess(replace(ONE_CORE, cores=2), load, seed=SEED)
    found = process.run(5.0, warm_up_s=0.0)
    counts = process.scheduler.queue.counts
    assert counts.admitted == counts.ended + process.scheduler.queue.open_texts
    assert counts.failed == counts.expired == counts.cancelled == 0
    assert set(found.latencies_s) == {"queries", "mixed"}
    assert len(found.latencies_s["queries"]) == pytest.approx(500, rel=0.15)


def test_a_load_is_the_same_for_a_real_and_a_simulated_process() -> None:
    [stream] = arriving("mixed", MIXED, 50.0).streams

    def draw(seed: int) -> list[object]:
        return [*itertools.islice(zip(stream.arrivals(seed), stream.requests(seed), strict=True), 200)]

    assert draw(3) == draw(3)
    assert draw(4) != draw(3)


def test_a_fit_finds_the_costs_of_calls_and_of_python_code() -> None:
    dice = random.Random(SEED)
    calls, at = [], 0.0
    for _ in range(300):
        lengths = [dice.randint(5, 400) for _ in range(dice.randint(1, 8))]
        seconds = CALL.seconds(lengths, 1) * dice.uniform(0.95, 1.05)
        calls.append(MeasuredCall(lengths, 1, at, at + seconds, seconds, "lane"))
        at += seconds + PYTHON.turn_s
    fitted = fit_calls(calls)
    assert fitted.per_token_s == pytest.approx(CALL.per_token_s, rel=0.05)
    assert fitted.per_pair_s == pytest.approx(CALL.per_pair_s, rel=0.3)
    assert 0.9 < min(fitted.noise) <= 1.0 <= max(fitted.noise) < 1.1
    run = MeasuredRun(10.0, {"one": [0.1] * 100}, 0, 0.04, calls)
    found = fit_python(run)
    assert (found.request_s, found.turn_s) == pytest.approx((4e-4, PYTHON.turn_s))


def test_memory_slows_calls_that_ask_for_more_than_it_gives() -> None:
    machine = replace(ONE_CORE, memory_bytes_s=1e9, link_bytes_s=1e8)
    assert machine.memory_share(5e8) == 1.0
    assert machine.memory_share(2e9) == pytest.approx(0.5)
    assert replace(machine, nodes=2).memory_share(1e9) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("all_cores", "seconds"),
    [(CORES[:3], 1.0), pytest.param(CORES, 2.0, marks=pytest.mark.full)],
    ids=["few", "all"],
)
@pytest.mark.parametrize("load", sorted(LOADS))
def test_more_cores_never_answer_much_less(load: str, all_cores: Sequence[int], seconds: float) -> None:
    machine = machine_of(ONE_CORE, 1)
    texts = [simulate_scale(machine, cores, load, seconds, SEED).found.texts for cores in all_cores]
    assert min(texts) > 0
    for fewer, more in itertools.pairwise(texts):
        assert more > 0.8 * fewer, texts
