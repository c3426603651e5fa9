"""The choice of the best plan from all measurements.

The best plan is the fastest plan that is accurate enough. Among about equally fast plans, the most accurate
is the best. On a machine that is too noisy, a plan can be chosen only if it beats the safe plan by more than
the noise in each pass. If there is no such plan, the safe plan is chosen.

Faster plans that were not chosen, because they are inaccurate or not installed, get a sentence of advice.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum

from vecmill.commands.optimize.candidates import choose_engines
from vecmill.commands.optimize.measurements import Measurements, Ratio
from vecmill.serving_plan.plans import Accuracy, describe_plan, kind_of
from vecmill.values.engine_plan import EnginePlan

# Plans whose scores differ by less than this from the best cannot be told apart in the available time.
TIE = 0.01
# If the safe plan's two speeds of a pass typically differ by more than this, the machine is too noisy.
NOISE_BOUND = 0.10
# On a noisy machine a plan needs at least this many passes to be chosen.
FEWEST_PASSES = 3
# Cosines are compared to this number of digits; later digits are rounding errors.
COSINE_DIGITS = 5


class Objective(StrEnum):
    """The measure by which the best plan is chosen."""

    THROUGHPUT = "throughput"  # texts per second with many waiting texts
    LATENCY = "latency"  # the time of a single text
    BALANCED = "balanced"  # both with equal weight


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of an optimisation: its objective, and its minimum accuracy.

    `min_cosine` is for the worst text, `min_recall` for recall@10, or the share of equal labels.
    """

    objective: Objective = Objective.BALANCED
    min_cosine: float = 0.999
    min_recall: float | None = None

    def refusal(self, accuracy: Accuracy) -> str | None:
        """Return why a plan with this accuracy cannot be chosen, `None` if it can."""
        if not accuracy.worst_cosine >= self.min_cosine:
            found, minimum = accuracy.worst_cosine, self.min_cosine
            return f"the cosine of its worst text is {found:.5f}, and the minimum is {minimum:g}"
        if self.min_recall is not None and (accuracy.kept is None or accuracy.kept < self.min_recall):
            recall = "unknown (too few texts)" if accuracy.kept is None else f"{accuracy.kept:.3f}"
            return f"its recall@10 is {recall}, and the minimum is {self.min_recall:g}"
        return None

    def score(self, ratio: Ratio) -> float:
        """Return the score of a plan by the objective: the logarithm of its relative speed."""
        match self.objective:
            case Objective.THROUGHPUT:
                return math.log(ratio.throughput)
            case Objective.LATENCY:
                return math.log(ratio.latency)
            case Objective.BALANCED:
                return math.log(ratio.throughput * ratio.latency) / 2


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen plan and the reason. `noise` is the typical change of the machine's speed within a pass.

    `is_too_noisy` means that `plan` is the safe plan because of the noise.
    """

    plan: EnginePlan
    reason: str
    noise: float
    is_too_noisy: bool = False


def choose(measured: Measurements, goal: Goal) -> Choice:
    """Choose the best plan of `measured`, whose safe plan must meet the goal."""
    noise = measure_noise(measured, goal)
    candidates = contenders(measured, goal)
    if noise > NOISE_BOUND:
        candidates = [plan for plan in candidates if _beats_noise(measured, goal, plan, noise)]
    if not candidates:
        reason = (
            f"the machine was too noisy to choose another plan than the safe plan: the speed of the same "
            f"engine changed by {noise:.0%} within a pass, and the limit is {NOISE_BOUND:.0%}"
        )
        return Choice(measured.safe, reason, noise, is_too_noisy=True)
    scores = {plan: median_score(measured, goal, plan) for plan in candidates}
    best = max(scores.values())
    tied = [plan for plan, score in scores.items() if score >= best + math.log(1 - TIE)]
    chosen = max(tied, key=lambda plan: (_digits(measured, plan), scores[plan]))
    reason = _reason(measured, goal, chosen, tied)
    if noise > NOISE_BOUND:
        reason += (
            f". The machine was noisy (its speed changed by {noise:.0%} within a pass), but this plan beat "
            "the safe plan by more than the noise in every pass"
        )
    return Choice(chosen, reason, noise)


def contenders(measured: Measurements, goal: Goal) -> list[EnginePlan]:
    """Return the plans that can be chosen: accurate enough, and measured about as often as any other plan.

    A single lucky measurement must not beat a median of many.
    """
    allowed = [plan for plan in measured.plans if may_be_chosen(measured, goal, plan)]
    most = max((len(measured.ratios(plan)) for plan in allowed if plan != measured.safe), default=0)
    often = [plan for plan in allowed if plan != measured.safe and 2 * len(measured.ratios(plan)) >= most]
    return [measured.safe, *(plan for plan in often if measured.ratios(plan))]


def may_be_chosen(measured: Measurements, goal: Goal, plan: EnginePlan) -> bool:
    """Return whether a plan works and meets the goal."""
    screening = measured.screening_of(plan)
    return (
        plan not in measured.failures and screening is not None and goal.refusal(screening.accuracy) is None
    )


def median_score(measured: Measurements, goal: Goal, plan: EnginePlan) -> float:
    """Return the median of a plan's scores: 0 for the safe plan, minus infinity without measurements."""
    if plan == measured.safe:
        return 0.0
    scores = [goal.score(ratio) for ratio in measured.ratios(plan)]
    return statistics.median(scores) if scores else -math.inf


def measure_noise(measured: Measurements, goal: Goal) -> float:
    """Return the median relative change of the safe plan's speed within a pass, 0 without passes."""
    changes = [abs(math.expm1(abs(goal.score(one.drift)))) for one in measured.passes]
    return statistics.median(changes) if changes else 0.0


def _beats_noise(measured: Measurements, goal: Goal, plan: EnginePlan, noise: float) -> bool:
    """Return whether a plan beat the safe plan by more than the noise in each of several passes."""
    scores = [] if plan == measured.safe else [goal.score(ratio) for ratio in measured.ratios(plan)]
    return len(scores) >= FEWEST_PASSES and min(scores) > math.log1p(noise)


def _digits(measured: Measurements, plan: EnginePlan) -> float:
    screening = measured.screening_of(plan)
    assert screening is not None
    return round(screening.accuracy.worst_cosine, COSINE_DIGITS)


def _reason(measured: Measurements, goal: Goal, chosen: EnginePlan, tied: list[EnginePlan]) -> str:
    if len(measured.plans) == 1 or not measured.passes:
        return "only the safe plan was measured"
    measure = {
        Objective.THROUGHPUT: "texts per second",
        Objective.LATENCY: "the time of a single text",
        Objective.BALANCED: "texts per second and the time of a single text, with equal weight",
    }[goal.objective]
    times = math.exp(median_score(measured, goal, chosen))
    reason = f"the best of the accurate plans in {measure}, {times:.2f} times as fast as the safe plan"
    if len(tied) > 1:
        reason += f". {len(tied) - 1} other plans were within {TIE:.0%} of the best and are not more accurate"
    return reason


# The gains of docs/engines.md, for engines that are worth installing on most machines.
USUAL_GAINS: Mapping[str, str] = {
    "openvino": "In bf16 it is usually 1.7 times as fast as onnx in fp32, on processors with bf16 "
    "instructions."
}
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


def find_clouded(measured: Measurements, goal: Goal, choice: Choice) -> tuple[EnginePlan, float] | None:
    """Return the accurate plan that seemed the fastest in the noise, and its speed relative to the safe plan.

    `None` if the machine was not too noisy, or no plan was faster.
    """
    if not choice.is_too_noisy:
        return None
    scores = {plan: median_score(measured, goal, plan) for plan in contenders(measured, goal)}
    best = max(scores, key=lambda plan: scores[plan])
    return None if best == measured.safe else (best, math.exp(scores[best]))


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
    if goal.min_recall is None:
        return
    if accuracy.kept is None:
        yield math.inf, "--min-neighbours 0"
    elif accuracy.kept < goal.min_recall:
        yield goal.min_recall - accuracy.kept, f"--min-neighbours {_floor(accuracy.kept, '0.001')}"


def _floor(value: float, step: str) -> str:
    """Return `value`, rounded down to a multiple of `step`, a power of ten."""
    return str(Decimal(repr(float(value))).quantize(Decimal(step), ROUND_FLOOR))
