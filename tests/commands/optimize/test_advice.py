"""The terminal says which engine is missing, and which faster plan was nearly accurate enough."""

import os
import re
import shutil
import sys

import pytest

from support.landscape import accuracy_of
from vecmill.commands.optimize import candidates, progress
from vecmill.commands.optimize.advice import describe_missing, describe_refused
from vecmill.commands.optimize.choice import Goal, choose
from vecmill.commands.optimize.measurements import Measurements, Pass, Screening, Speed
from vecmill.engines import ENGINES, EngineEntry
from vecmill.values.engine_plan import EnginePlan, Precision

SAFE = EnginePlan("onnx", Precision.FP32, "cpu")
INT8 = EnginePlan("onnx", Precision.INT8, "cpu")
WIDE_INT8 = EnginePlan("onnx", Precision.INT8, "cpu", (2,))
FAST = EnginePlan("onnx", Precision.INT8_FAST, "cpu")
CALM = Speed(100.0, 0.010)


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
    (sentence,) = advice(measured((INT8, 0.9995, 1.5), kept=0.975), Goal(min_kept=0.98))
    assert "missed the minimum by 0.005" in sentence
    assert sentence.endswith("add --min-neighbours 0.975.")
    assert advice(measured((INT8, 0.9995, 1.5), kept=None), Goal(min_kept=0.98)) == []


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
