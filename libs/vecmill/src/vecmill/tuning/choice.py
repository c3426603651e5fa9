"""Which plan it is to be: from what was measured to a verdict. Pure.

The fastest of the plans that are accurate enough; of plans as good as equally fast, the most accurate. Where
the machine was so noisy that its figures mean little, only plans that beat the safe one by more than the
noise each time; without any, the safe plan.
"""

import math
import statistics
from dataclasses import dataclass
from enum import StrEnum

from vecmill.plan import EnginePlan
from vecmill.tuning.figures import Accuracy, Ledger, Ratio

# Plans this near to the best are as good as it: more than that cannot be told apart in the time there is.
TIE = 0.01
# The safe plan's two figures of a pass are typically further apart than this on a machine that is too noisy.
NOISE_BOUND = 0.10
# On such a machine a plan that is better by far is still chosen, if it was so in at least this many passes.
FEWEST_PASSES = 3
# Cosines are told apart up to this many digits; beyond, it is rounding.
COSINE_DIGITS = 5


class Objective(StrEnum):
    """What the best plan is best at."""

    THROUGHPUT = "throughput"  # texts a second where many wait
    LATENCY = "latency"  # the time of a lone text
    BALANCED = "balanced"  # both alike


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a plan: what it is to be good at, and how accurate it must be.

    `min_cosine` is for the worst text; `min_kept` for the neighbours, documents or labels that are the same.
    """

    objective: Objective = Objective.BALANCED
    min_cosine: float = 0.999
    min_kept: float | None = None

    def refusal(self, accuracy: Accuracy) -> str | None:
        """Why a plan of that accuracy may not be chosen; `None` if it may."""
        if not accuracy.worst >= self.min_cosine:
            return f"the cosine of its worst text is {accuracy.worst:.5f}, asked for is {self.min_cosine:g}"
        if self.min_kept is not None and (accuracy.kept is None or accuracy.kept < self.min_kept):
            kept = (
                "unknown, for there were too few texts" if accuracy.kept is None else f"{accuracy.kept:.3f}"
            )
            return f"its share of neighbours kept is {kept}, asked for is {self.min_kept:g}"
        return None

    def score(self, ratio: Ratio) -> float:
        """How good a plan is by the objective: the logarithm of how many times as fast it is."""
        match self.objective:
            case Objective.THROUGHPUT:
                return math.log(ratio.throughput)
            case Objective.LATENCY:
                return math.log(ratio.latency)
            case Objective.BALANCED:
                return math.log(ratio.throughput * ratio.latency) / 2


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan to serve with, and why. `noise` is the typical change of the machine's speed within a pass.

    `is_too_noisy` says that nothing could be chosen, and this is the safe plan.
    """

    plan: EnginePlan
    reason: str
    noise: float
    is_too_noisy: bool = False


def choose(ledger: Ledger, demand: Demand) -> Choice:
    """The best of what `ledger` knows. The safe plan must be among those that may be chosen."""
    noise = measure_noise(ledger, demand)
    candidates = contenders(ledger, demand)
    if noise > NOISE_BOUND:
        candidates = [plan for plan in candidates if _beats_noise(ledger, demand, plan, noise)]
    if not candidates:
        reason = (
            f"this machine was too noisy to choose: the same engine's speed changed by {noise:.0%} within "
            f"moments, at most {NOISE_BOUND:.0%} is useful. It is the safe plan"
        )
        return Choice(ledger.safe, reason, noise, is_too_noisy=True)
    scores = {plan: median_score(ledger, demand, plan) for plan in candidates}
    best = max(scores.values())
    tied = [plan for plan, score in scores.items() if score >= best + math.log(1 - TIE)]
    chosen = max(tied, key=lambda plan: (_digits(ledger, plan), scores[plan]))
    reason = _reason(ledger, demand, chosen, tied)
    if noise > NOISE_BOUND:
        reason += (
            ". This machine was too noisy to tell good plans from better ones (its speed changed by "
            f"{noise:.0%} within moments), but this one beat the safe plan by more than that every time"
        )
    return Choice(chosen, reason, noise)


def contenders(ledger: Ledger, demand: Demand) -> list[EnginePlan]:
    """The plans that may be chosen: accurate enough, measured, and about as often as any other.

    One lucky figure must not beat a median of many.
    """
    allowed = [plan for plan in ledger.plans if may_be_chosen(ledger, demand, plan)]
    most = max((len(ledger.ratios(plan)) for plan in allowed if plan != ledger.safe), default=0)
    often = [plan for plan in allowed if plan != ledger.safe and 2 * len(ledger.ratios(plan)) >= most]
    return [ledger.safe, *(plan for plan in often if ledger.ratios(plan))]


def may_be_chosen(ledger: Ledger, demand: Demand, plan: EnginePlan) -> bool:
    """Whether a plan works and is as accurate as asked."""
    admission = ledger.admission_of(plan)
    return (
        plan not in ledger.failures and admission is not None and demand.refusal(admission.accuracy) is None
    )


def median_score(ledger: Ledger, demand: Demand, plan: EnginePlan) -> float:
    """The median of a plan's scores; 0 for the safe plan, worse than all where nothing was measured."""
    if plan == ledger.safe:
        return 0.0
    scores = [demand.score(ratio) for ratio in ledger.ratios(plan)]
    return statistics.median(scores) if scores else -math.inf


def measure_noise(ledger: Ledger, demand: Demand) -> float:
    """The median of how much the safe plan's speed changed within a pass, as a share; 0 without passes."""
    changes = [abs(math.expm1(abs(demand.score(one.drift)))) for one in ledger.passes]
    return statistics.median(changes) if changes else 0.0


def _beats_noise(ledger: Ledger, demand: Demand, plan: EnginePlan, noise: float) -> bool:
    """Whether a plan was better than the safe one, by more than the noise, in each of several passes."""
    scores = [] if plan == ledger.safe else [demand.score(ratio) for ratio in ledger.ratios(plan)]
    return len(scores) >= FEWEST_PASSES and min(scores) > math.log1p(noise)


def _digits(ledger: Ledger, plan: EnginePlan) -> float:
    admission = ledger.admission_of(plan)
    assert admission is not None
    return round(admission.accuracy.worst, COSINE_DIGITS)


def _reason(ledger: Ledger, demand: Demand, chosen: EnginePlan, tied: list[EnginePlan]) -> str:
    if len(ledger.plans) == 1 or not ledger.passes:
        return "nothing else was measured, so it is the safe plan"
    what = {
        Objective.THROUGHPUT: "texts a second",
        Objective.LATENCY: "the time of a lone text",
        Objective.BALANCED: "texts a second and the time of a lone text, both alike",
    }[demand.objective]
    times = math.exp(median_score(ledger, demand, chosen))
    reason = (
        f"of the plans that are accurate enough it is the best in {what}: {times:.2f} times the safe plan"
    )
    if len(tied) > 1:
        reason += f". {len(tied) - 1} more were within {TIE:.0%} of the best; of them it is the most accurate"
    return reason
