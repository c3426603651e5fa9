"""Sentences about faster plans that were not chosen: engines that are not installed, and inaccurate plans."""

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from types import MappingProxyType

from vecmill.commands.optimize.candidates import choose_engines
from vecmill.commands.optimize.choice import Choice, Goal, median_score
from vecmill.commands.optimize.measurements import Measurements
from vecmill.serving_plan.plans import Accuracy, describe_plan, kind_of
from vecmill.values.engine_plan import EnginePlan

# The gains of docs/engines.md, for engines that are worth installing on most machines.
USUAL_GAINS: Mapping[str, str] = MappingProxyType(
    {
        "openvino": "In bf16 it is usually 1.7 times as fast as onnx in fp32, on processors with bf16 "
        "instructions."
    }
)
# A plan that misses the minimum by more is not worth a sentence.
FARTHEST_MISS = 0.01


def describe_missing(engines: Sequence[str]) -> list[str]:
    """Return a sentence for each engine that is worth trying and is not installed.

    `engines` are the engines that the user named, which are the only ones to try.
    """
    _, left_out = choose_engines(engines)
    worth = {} if engines else USUAL_GAINS
    return [f"{name} is {left_out[name]}. {gain}" for name, gain in worth.items() if name in left_out]


def describe_refused(measured: Measurements, goal: Goal, choice: Choice) -> list[str]:
    """Return a sentence for each kind of plan that is faster than the chosen plan and nearly accurate.

    The fastest kind comes first.
    """
    chosen = median_score(measured, goal, choice.plan)
    best: dict[tuple[str, str | None, str | None], tuple[float, EnginePlan]] = {}
    for plan in measured.plans:
        score = median_score(measured, goal, plan)
        if score > max(chosen, best.get(kind_of(plan), (-math.inf,))[0]) and plan not in measured.failures:
            best[kind_of(plan)] = (score, plan)
    ranked = sorted(best.values(), key=lambda found: -found[0])
    sentences = (_describe_miss(measured, goal, plan, math.exp(score)) for score, plan in ranked)
    return [sentence for sentence in sentences if sentence is not None]


def _describe_miss(measured: Measurements, goal: Goal, plan: EnginePlan, times: float) -> str | None:
    screening = measured.screening_of(plan)
    if screening is None:
        return None
    refusal, missed = goal.refusal(screening.accuracy), list(_missed(goal, screening.accuracy))
    if refusal is None or not max(by for by, _ in missed) <= FARTHEST_MISS:  # also if one is not a number
        return None
    name = describe_plan(EnginePlan(plan.engine, plan.precision, plan.device))
    by = f"{max(0.00001, *(by for by, _ in missed)):.5f}".rstrip("0")
    options = " ".join(option for _, option in missed)
    return (
        f"{name} was {times:.2f} times as fast as the safe plan, and missed the minimum by {by}: {refusal}. "
        f"To allow it, add {options}."
    )


def _missed(goal: Goal, accuracy: Accuracy) -> Iterator[tuple[float, str]]:
    """Return by how much each minimum is missed, and the option that would allow the accuracy."""
    if not accuracy.worst_cosine >= goal.min_cosine:
        option = f"--min-cosine {_floor(accuracy.worst_cosine, '0.0001')}"
        yield goal.min_cosine - accuracy.worst_cosine, option
    if goal.min_kept is None:
        return
    if accuracy.kept is None:
        yield math.inf, "--min-neighbours 0"
    elif accuracy.kept < goal.min_kept:
        yield goal.min_kept - accuracy.kept, f"--min-neighbours {_floor(accuracy.kept, '0.001')}"


def _floor(value: float, step: str) -> str:
    """Return `value`, rounded down to a multiple of `step`, a power of ten."""
    return str(Decimal(repr(float(value))).quantize(Decimal(step), ROUND_FLOOR))
