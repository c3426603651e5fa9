"""What was measured, and what follows from it. Pure."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from vecmill.plan import EnginePlan
from vecmill.scores import cosine_at


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement: texts a second with much waiting, and the median time of a lone text, in seconds."""

    texts_per_s: float
    latency_s: float

    def over(self, other: "Speed") -> "Ratio":
        """How many times as fast as `other` this is."""
        return Ratio(self.texts_per_s / other.texts_per_s, other.latency_s / self.latency_s)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as another plan: in texts a second, and for a lone text."""

    throughput: float
    latency: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a plan's answers are from those of `reference`, over `texts` texts or pairs.

    `largest_difference` is over all numbers, `scale` the largest of the reference's. `cosine_min` and
    `cosine_mean` are those of rows, `None` where the answers are scores. `kept` is the share of nearest
    neighbours, best documents or best labels that are the same; `None` where there were too few texts.
    """

    reference: str
    texts: int
    largest_difference: float
    scale: float
    cosine_min: float | None
    cosine_mean: float | None
    kept: float | None

    @property
    def worst(self) -> float:
        """The cosine of the worst text; for scores, that of rows that were as far off."""
        if self.cosine_min is not None:
            return self.cosine_min
        return cosine_at(self.largest_difference, self.scale)


@dataclass(frozen=True, slots=True)
class Admission:
    """What a plan showed before its speed was measured.

    `load_s` is the time from nothing to ready, `memory_mb` what its process held then, shared pages
    counted by their share; `None` where the system does not tell.
    """

    load_s: float
    memory_mb: float | None
    accuracy: Accuracy


@dataclass(frozen=True, slots=True)
class Pass:
    """Plans measured one after the other, and the safe plan `before` and `after` all of them."""

    number: int
    before: Speed
    after: Speed
    speeds: Mapping[EnginePlan, Speed]
    failures: Mapping[EnginePlan, str] = field(default_factory=dict)

    @property
    def safe(self) -> Speed:
        """The safe plan in the middle of the pass."""
        return Speed(
            math.sqrt(self.before.texts_per_s * self.after.texts_per_s),
            math.sqrt(self.before.latency_s * self.after.latency_s),
        )

    @property
    def drift(self) -> Ratio:
        """How many times as fast the machine was after the pass as before."""
        return self.after.over(self.before)


@dataclass(slots=True)
class Ledger:
    """All that is known of the plans. `safe` is the plan that others are compared with."""

    safe: EnginePlan
    admissions: dict[EnginePlan, Admission] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    failures: dict[EnginePlan, str] = field(default_factory=dict)

    @property
    def plans(self) -> tuple[EnginePlan, ...]:
        """Every plan of which anything is known, the safe one first, each once."""
        measured = (plan for one in self.passes for plan in one.speeds)
        return tuple(dict.fromkeys([self.safe, *self.admissions, *measured, *self.failures]))

    def admission_of(self, plan: EnginePlan) -> Admission | None:
        """The plan's own admission, or that of one with the same engine, device and precision."""
        if plan in self.admissions:
            return self.admissions[plan]
        alike = (found for other, found in self.admissions.items() if kind_of(other) == kind_of(plan))
        return next(alike, None)

    def ratios(self, plan: EnginePlan) -> list[Ratio]:
        """How many times as fast as the safe plan it was, for each pass that it was in."""
        if plan == self.safe:
            return [Ratio(1.0, 1.0)] * len(self.passes)
        return [one.speeds[plan].over(one.safe) for one in self.passes if plan in one.speeds]

    def median_ratio(self, plan: EnginePlan) -> Ratio | None:
        """The medians of `ratios`; `None` for a plan that was in no pass."""
        found = self.ratios(plan)
        if not found:
            return None
        return Ratio(
            statistics.median(ratio.throughput for ratio in found),
            statistics.median(ratio.latency for ratio in found),
        )

    def speed_of(self, plan: EnginePlan) -> Speed | None:
        """The speed that a plan has where the safe plan has its median speed."""
        ratio = self.median_ratio(plan)
        if ratio is None:
            return None
        texts_per_s = statistics.median(one.safe.texts_per_s for one in self.passes)
        latency_s = statistics.median(one.safe.latency_s for one in self.passes)
        return Speed(texts_per_s * ratio.throughput, latency_s / ratio.latency)


def kind_of(plan: EnginePlan) -> tuple[str, str | None, str | None]:
    """What decides a plan's accuracy: engine, device, precision."""
    return plan.engine, plan.device, plan.precision
