"""The measurements of all plans, the figures derived from them, and their JSON."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vecmill.serving_plan.plans import Accuracy, JsonObject, kind_of, read_plan, write_accuracy, write_plan
from vecmill.values.engine_plan import EnginePlan


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement: texts per second with many waiting texts, and the median seconds of a single text."""

    texts_per_s: float
    latency_s: float

    def over(self, other: "Speed") -> "Ratio":
        """Return this speed relative to `other`."""
        return Ratio(self.texts_per_s / other.texts_per_s, other.latency_s / self.latency_s)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A relative speed, in texts per second and for a single text; above 1 is faster."""

    throughput: float
    latency: float


@dataclass(frozen=True, slots=True)
class Screening:
    """The figures of a plan's load and check.

    `load_s` is the load time in seconds, `memory_mb` the proportional set size of the process, `None` if the
    system does not report it.
    """

    load_s: float
    memory_mb: float | None
    accuracy: Accuracy


@dataclass(frozen=True, slots=True)
class Pass:
    """Plans measured in sequence, and the speed of the safe plan `before` and `after` these plans."""

    number: int
    before: Speed
    after: Speed
    speeds: Mapping[EnginePlan, Speed]
    failures: Mapping[EnginePlan, str] = field(default_factory=dict)

    @property
    def safe(self) -> Speed:
        """The speed of the safe plan in the pass: the geometric mean of `before` and `after`."""
        return Speed(
            math.sqrt(self.before.texts_per_s * self.after.texts_per_s),
            math.sqrt(self.before.latency_s * self.after.latency_s),
        )

    @property
    def drift(self) -> Ratio:
        """The speed of the safe plan after the pass, relative to its speed before the pass."""
        return self.after.over(self.before)


@dataclass(slots=True)
class Measurements:
    """The measurements of all plans. `safe` is the plan that the other plans are compared with."""

    safe: EnginePlan
    screenings: dict[EnginePlan, Screening] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    failures: dict[EnginePlan, str] = field(default_factory=dict)

    @property
    def plans(self) -> tuple[EnginePlan, ...]:
        """All plans with any measurement or failure, the safe plan first, each once."""
        measured = (plan for one in self.passes for plan in one.speeds)
        return tuple(dict.fromkeys([self.safe, *self.screenings, *measured, *self.failures]))

    def screening_of(self, plan: EnginePlan) -> Screening | None:
        """Return the screening of a plan, or else of a plan of the same kind; `None` without a screening."""
        if plan in self.screenings:
            return self.screenings[plan]
        alike = (found for other, found in self.screenings.items() if kind_of(other) == kind_of(plan))
        return next(alike, None)

    def ratios(self, plan: EnginePlan) -> list[Ratio]:
        """Return the speeds of a plan relative to the safe plan, one for each of its passes."""
        if plan == self.safe:
            return [Ratio(1.0, 1.0)] * len(self.passes)
        return [one.speeds[plan].over(one.safe) for one in self.passes if plan in one.speeds]

    def median_ratio(self, plan: EnginePlan) -> Ratio | None:
        """Return the medians of `ratios`, `None` for a plan that was in no pass."""
        found = self.ratios(plan)
        if not found:
            return None
        return Ratio(
            statistics.median(ratio.throughput for ratio in found),
            statistics.median(ratio.latency for ratio in found),
        )

    def speed_of(self, plan: EnginePlan) -> Speed | None:
        """Return the speed of a plan, scaled to the median speed of the safe plan; `None` without passes."""
        ratio = self.median_ratio(plan)
        if ratio is None:
            return None
        texts_per_s = statistics.median(one.safe.texts_per_s for one in self.passes)
        latency_s = statistics.median(one.safe.latency_s for one in self.passes)
        return Speed(texts_per_s * ratio.throughput, latency_s / ratio.latency)


def write_screening(screening: Screening) -> JsonObject:
    """Convert a screening to a JSON object."""
    return {**asdict(screening), "accuracy": write_accuracy(screening.accuracy)}


def read_screening(document: Mapping[str, Any]) -> Screening:
    """Convert a JSON object to a screening."""
    return Screening(document["load_s"], document["memory_mb"], Accuracy(**document["accuracy"]))


def write_pass(done: Pass) -> JsonObject:
    """Convert a pass to a JSON object."""
    return {
        "number": done.number,
        "before": asdict(done.before),
        "after": asdict(done.after),
        "speeds": [{"plan": write_plan(plan), **asdict(speed)} for plan, speed in done.speeds.items()],
        "failures": [{"plan": write_plan(plan), "reason": why} for plan, why in done.failures.items()],
    }


def read_pass(document: Mapping[str, Any]) -> Pass:
    """Convert a JSON object to a pass."""
    return Pass(
        number=document["number"],
        before=Speed(**document["before"]),
        after=Speed(**document["after"]),
        speeds={
            read_plan(entry["plan"]): Speed(entry["texts_per_s"], entry["latency_s"])
            for entry in document["speeds"]
        },
        failures={read_plan(entry["plan"]): entry["reason"] for entry in document["failures"]},
    )
