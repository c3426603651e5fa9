"""The choice: the fastest that is accurate enough, and nothing that only looks like it."""

import os
import re
import shutil
import sys
from dataclasses import astuple, replace

import pytest

from support.landscape import accuracy_of
from vecmill.commands.optimize import candidates, progress
from vecmill.commands.optimize.choice import (
    TIE,
    Goal,
    Objective,
    choose,
    describe_missing,
    describe_refused,
    find_clouded,
    measure_noise,
)
from vecmill.commands.optimize.measurements import Measurements, Pass, Screening, Speed
from vecmill.engines import ENGINES, EngineEntry
from vecmill.serving_plan.plans import Accuracy
from vecmill.values.engine_plan import EnginePlan, Precision

SAFE = EnginePlan("onnx", Precision.FP32, "cpu")
BF16 = EnginePlan("openvino", Precision.BF16, "cpu")
INT8 = EnginePlan("onnx", Precision.INT8, "cpu")
CALM = Speed(100.0, 0.010)


def ledger_of(
    accuracies: dict[EnginePlan, float], *passes: dict[EnginePlan, tuple[float, float]], after: Speed = CALM
) -> Measurements:
    """What would be known of plans with those worst cosines, and those texts/s and ms in each pass."""
    screenings = {plan: Screening(1.0, 200.0, accuracy_of(cosine)) for plan, cosine in accuracies.items()}
    done = [
        Pass(number, CALM, after, {plan: Speed(rate, ms / 1000) for plan, (rate, ms) in speeds.items()})
        for number, speeds in enumerate(passes, 1)
    ]
    return Measurements(SAFE, {SAFE: Screening(1.0, 200.0, accuracy_of(1.0)), **screenings}, done)


def test_the_fastest_is_chosen() -> None:
    measured = ledger_of({BF16: 0.9999, INT8: 0.9995}, {BF16: (180, 6), INT8: (150, 7)})
    choice = choose(measured, Goal())
    assert choice.plan == BF16
    assert "1.7" in choice.reason
    assert not choice.is_too_noisy


def test_what_is_not_accurate_enough_is_never_chosen_however_fast() -> None:
    measured = ledger_of({BF16: 0.9999, INT8: 0.99899}, {BF16: (120, 9), INT8: (100_000, 0.01)})
    assert choose(measured, Goal()).plan == BF16


def test_the_bound_is_the_persons() -> None:
    measured = ledger_of({BF16: 0.9999, INT8: 0.99}, {BF16: (120, 9), INT8: (200, 5)})
    assert choose(measured, Goal(min_cosine=0.98)).plan == INT8


def test_neighbours_count_where_they_are_asked_for() -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (200, 5)})
    assert choose(measured, Goal(min_recall=0.98)).plan == BF16
    assert choose(measured, Goal(min_recall=0.995)).plan == SAFE


def test_neighbours_that_nobody_could_count_do_not_pass() -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (200, 5)})
    measured.screenings[BF16] = Screening(1.0, None, accuracy_of(0.9999, kept=None))
    assert choose(measured, Goal(min_recall=0.5)).plan == SAFE
    assert choose(measured, Goal()).plan == BF16


def test_rows_that_are_not_a_number_do_not_pass() -> None:
    measured = ledger_of({BF16: float("nan")}, {BF16: (200, 5)})
    assert choose(measured, Goal()).plan == SAFE


def test_of_equals_the_most_accurate_is_chosen() -> None:
    within = 200 * (1 - TIE / 2)
    measured = ledger_of({BF16: 0.9999, INT8: 0.9993}, {BF16: (within, 5), INT8: (200, 5)})
    assert choose(measured, Goal(Objective.THROUGHPUT)).plan == BF16
    measured = ledger_of({BF16: 0.9999, INT8: 0.9993}, {BF16: (200 * (1 - 2 * TIE), 5), INT8: (200, 5)})
    assert choose(measured, Goal(Objective.THROUGHPUT)).plan == INT8


def test_of_equally_accurate_equals_the_faster_is_chosen() -> None:
    wide = replace(SAFE, lane_widths=(2,))
    measured = ledger_of({wide: 0.99999999}, {wide: (100.5, 10)})
    assert choose(measured, Goal(Objective.THROUGHPUT)).plan == wide


@pytest.mark.parametrize(
    ("objective", "best"),
    [(Objective.THROUGHPUT, INT8), (Objective.LATENCY, BF16), (Objective.BALANCED, BF16)],
)
def test_each_objective_has_its_own_best(objective: Objective, best: EnginePlan) -> None:
    measured = ledger_of({BF16: 0.9999, INT8: 0.9995}, {BF16: (150, 4), INT8: (160, 8)})
    assert choose(measured, Goal(objective)).plan == best


def test_one_lucky_figure_does_not_beat_a_median() -> None:
    lucky = replace(BF16, max_batch_tokens=256)
    passes = [{BF16: (180.0, 6.0)}] * 6
    measured = ledger_of({BF16: 0.9999}, *passes, {BF16: (180, 6), lucky: (260, 4)})
    assert choose(measured, Goal()).plan == BF16


def test_figures_count_over_the_safe_plan_of_the_same_pass() -> None:
    # The machine was three times as fast in the second pass, in which only INT8 was measured.
    fast = Speed(300.0, 0.010 / 3)
    measured = ledger_of({BF16: 0.9999, INT8: 0.9995}, {BF16: (180, 6)})
    measured.passes.append(Pass(2, fast, fast, {INT8: Speed(330.0, 0.009 / 3)}))
    assert choose(measured, Goal()).plan == BF16


def test_a_plan_that_failed_is_not_chosen() -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (180, 6)})
    measured.failures[BF16] = "its process was killed by signal 9"
    assert choose(measured, Goal()).plan == SAFE


def test_variants_are_as_accurate_as_their_kind() -> None:
    variant = replace(INT8, max_batch_tokens=256)
    measured = ledger_of({INT8: 0.9}, {variant: (900, 1)})
    assert choose(measured, Goal()).plan == SAFE


def test_a_plan_of_unknown_accuracy_is_not_chosen() -> None:
    assert choose(ledger_of({}, {INT8: (900, 1)}), Goal()).plan == SAFE


def test_on_a_noisy_machine_the_safe_plan_stays() -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (180, 6)}, {BF16: (180, 6)}, after=Speed(125.0, 0.008))
    choice = choose(measured, Goal())
    assert choice.is_too_noisy
    assert choice.plan == SAFE
    assert "noisy" in choice.reason
    assert choice.noise == pytest.approx(0.25)


def test_what_seemed_fastest_in_the_noise_is_named_with_the_command_that_serves_it() -> None:
    noisy = Speed(125.0, 0.008)
    passes = [{BF16: (180.0, 6.0), INT8: (400.0, 2.0)}] * 2
    measured = ledger_of({BF16: 0.9999, INT8: 0.99}, *passes, after=noisy)
    found = find_clouded(measured, Goal(), choose(measured, Goal()))
    assert found is not None
    assert found[0] == BF16  # of those that are accurate
    told = progress.describe_clouded(*found, "own/model")
    assert "1.5 times as fast as the safe plan" in told
    assert told.endswith("vecmill serve own/model --engine openvino --precision bf16 --device cpu")
    slow = ledger_of({BF16: 0.9999}, {BF16: (90.0, 12.0)}, after=noisy)
    assert find_clouded(slow, Goal(), choose(slow, Goal())) is None
    calm = ledger_of({BF16: 0.9999}, {BF16: (180.0, 6.0)})
    assert find_clouded(calm, Goal(), choose(calm, Goal())) is None


def test_a_plan_that_beats_the_noise_in_every_pass_is_chosen_even_there() -> None:
    noisy = Speed(125.0, 0.008)
    clear, unclear = {BF16: (180.0, 6.0)}, {BF16: (124.0, 8.1)}
    assert choose(ledger_of({BF16: 0.9999}, clear, clear, clear, after=noisy), Goal()).plan == BF16
    assert choose(ledger_of({BF16: 0.9999}, clear, clear, unclear, after=noisy), Goal()).is_too_noisy


@pytest.mark.parametrize("factor", [1.25, 0.8])
def test_noise_is_the_same_up_and_down(factor: float) -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (180, 6)}, after=Speed(100 * factor, 0.010 / factor))
    assert measure_noise(measured, Goal()) == pytest.approx(0.25)


def test_one_noisy_pass_of_many_is_no_noisy_machine() -> None:
    measured = ledger_of({BF16: 0.9999}, {BF16: (180, 6)}, {BF16: (180, 6)})
    measured.passes.append(Pass(3, CALM, Speed(50.0, 0.020), {BF16: Speed(180.0, 0.006)}))
    assert choose(measured, Goal()).plan == BF16


def test_where_nothing_was_measured_the_safe_plan_stays() -> None:
    choice = choose(ledger_of({BF16: 0.9999}), Goal())
    assert choice.plan == SAFE
    assert not choice.is_too_noisy


def test_scores_are_held_to_the_same_bound_as_rows() -> None:
    # A row of length 1 whose cosine is 0.999 is off by 0.0447.
    close = Accuracy("fp32", 100, 0.044, 1.0, None, None, 1.0)
    far = replace(close, largest_difference=0.046)
    assert Goal().refusal(close) is None
    assert Goal().refusal(far) is not None
    assert Goal().refusal(replace(far, scale=8.0)) is None


def test_the_reported_speed_is_that_on_a_machine_of_median_speed() -> None:
    slow, fast = Speed(50.0, 0.020), Speed(200.0, 0.005)
    measured = ledger_of({BF16: 0.9999}, {BF16: (200, 5)})
    measured.passes += [
        Pass(2, slow, slow, {BF16: Speed(100.0, 0.010)}),
        Pass(3, fast, fast, {BF16: Speed(400.0, 0.0025)}),
    ]
    ratio, speed = measured.median_ratio(BF16), measured.speed_of(BF16)
    assert ratio is not None
    assert astuple(ratio) == pytest.approx((2, 2))
    assert speed is not None
    assert astuple(speed) == pytest.approx((200, 0.005))


WIDE_INT8 = EnginePlan("onnx", Precision.INT8, "cpu", (2,))
FAST = EnginePlan("onnx", Precision.INT8_FAST, "cpu")


def measured(*plans: tuple[EnginePlan, float, float], kept: float | None = 0.99) -> Measurements:
    """Plans with the cosine of their worst text, and so many times as fast as the safe plan."""
    screenings = {SAFE: Screening(1.0, 200.0, accuracy_of(1.0))}
    screenings |= {plan: Screening(1.0, 200.0, accuracy_of(cosine, kept=kept)) for plan, cosine, _ in plans}
    speeds = {plan: Speed(100.0 * times, 0.010 / times) for plan, _, times in plans}
    return Measurements(SAFE, screenings, [Pass(1, CALM, CALM, speeds)])


def advice(found: Measurements, goal: Goal | None = None) -> list[str]:
    goal = goal or Goal()
    return describe_refused(found, goal, choose(found, goal))


def test_a_near_miss_is_named_with_its_speed_its_distance_and_the_option() -> None:
    (sentence,) = advice(measured((INT8, 0.99875, 1.5), (WIDE_INT8, 0.99875, 1.58)))
    assert sentence == (
        "onnx int8 was 1.58 times as fast as the safe plan, and missed the minimum by 0.00025: the cosine of "
        "its worst text is 0.99875, and the minimum is 0.999. To allow it, add --min-cosine 0.9987."
    )


def test_the_option_allows_the_plan() -> None:
    for cosine in (0.9987, 0.99899, 0.9989999, 0.99):
        found = measured((INT8, cosine, 1.5))
        (sentence,) = advice(found)
        option = re.search(r"--min-cosine ([0-9.]+)\.$", sentence)
        assert option is not None
        assert choose(found, Goal(min_cosine=float(option[1]))).plan == INT8


def test_the_fastest_kind_comes_first() -> None:
    first, second = advice(measured((INT8, 0.998, 1.5), (FAST, 0.997, 2.0)))
    assert first.startswith("onnx int8-fast was 2.00 times")
    assert second.startswith("onnx int8 was 1.50 times")


@pytest.mark.parametrize(
    "plan",
    [(INT8, 0.998, 0.9), (INT8, 0.9, 3.0), (INT8, float("nan"), 3.0), (INT8, 0.9995, 1.5)],
    ids=["slower", "far off", "not a number", "chosen"],
)
def test_nothing_is_said_of_others(plan: tuple[EnginePlan, float, float]) -> None:
    assert advice(measured(plan)) == []


def test_neighbours_that_were_asked_for_are_named() -> None:
    (sentence,) = advice(measured((INT8, 0.9995, 1.5), kept=0.975), Goal(min_recall=0.98))
    assert "missed the minimum by 0.005" in sentence
    assert sentence.endswith("add --min-neighbours 0.975.")
    assert advice(measured((INT8, 0.9995, 1.5), kept=None), Goal(min_recall=0.98)) == []


def test_an_engine_that_is_missing_is_named_with_its_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "onnx": ENGINES["onnx"],
        "openvino": EngineEntry("a:B", ("no_such_module",), "openvino"),
        "neuron": EngineEntry("a:B", ("no_such_module",), "neuron"),
    }
    monkeypatch.setattr(candidates, "ENGINES", table)
    (sentence,) = describe_missing(())
    assert sentence.startswith("openvino is not installed: ")
    assert "pip install" in sentence
    assert "1.7 times" in sentence
    assert describe_missing(("onnx",)) == []


@pytest.mark.parametrize("columns", [20, 60, 80, 200])
def test_a_step_is_cut_between_words(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    step = "openvino bf16, calls on 1 or 2 cores, 512 tokens, lengths in 8s: loading and checking"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    shown = progress._fit(step)
    assert shown == step or f"{step} ".startswith(f"{shown.removesuffix(' ...')} ")
    assert len(shown) <= max(24, columns - 26)


def test_a_log_has_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert progress._fit("word " * 50) == "word " * 50
