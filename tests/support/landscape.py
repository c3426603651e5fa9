"""Invented machines to search: every plan has a true speed, measurements are noisy, and time is a number."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vecmill.commands.optimize.candidates import SearchSpace, list_candidates, same_loading
from vecmill.commands.optimize.choice import Goal
from vecmill.commands.optimize.measurements import Pass, Screening, Speed
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.engines.base import EngineCapabilities
from vecmill.serving_plan.plans import Accuracy, kind_of
from vecmill.values.engine_plan import EnginePlan, Precision

FP32, BF16, INT8 = Precision.FP32, Precision.BF16, Precision.INT8

# What an engine of some precision is likely to be: how many times as fast, and the worst cosine.
TYPICAL = {
    FP32: (1.0, 0.9999999),
    BF16: (1.9, 0.99992),
    INT8: (1.7, 0.9975),
    Precision.INT8_FAST: (2.4, 0.98),
}


def accuracy_of(cosine: float, *, kept: float | None = 0.99) -> Accuracy:
    """An accuracy with that cosine for the worst text."""
    return Accuracy("onnx fp32, each text alone", 300, (1 - cosine) ** 0.5, 0.3, cosine, cosine, kept)


def search_space_of(cores: int = 2) -> SearchSpace:
    """Four engines in several precisions, one of which rounds lengths."""
    precisions = {
        "onnx": (FP32, INT8, Precision.INT8_FAST),
        "openvino": (FP32, BF16, INT8),
        "torch": (FP32, BF16),
        "torch-compile": (FP32, BF16),
    }
    capabilities = {
        engine: EngineCapabilities({"cpu": offered}, (8, 1) if engine == "openvino" else ())
        for engine, offered in precisions.items()
    }
    return list_candidates(capabilities, cores=cores)


@dataclass
class InventedMachine:
    """A `search.Bench` over a landscape that `seed` draws. Satisfies `Clock` by `now`.

    `noise` is the standard deviation of a measurement's logarithm, `drift` that of the machine's from one
    measurement to the next.
    """

    space: SearchSpace
    seed: int
    noise: float = 0.02
    drift: float = 0.01
    capacity: int = 4
    failing: Mapping[tuple[str, str | None, str | None], str] = field(default_factory=dict)
    load_s: float = 3.0
    measure_s: float = 1.3
    seconds: float = 0.0
    measurements: int = 0
    admitted: list[EnginePlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(f"landscape {self.seed}")
        self._chance = random.Random(f"noise {self.seed}")
        self._level = 1.0
        self._loaded: set[EnginePlan] = set()
        self._safe = self.space.safe_kinds[0]
        self.speeds: dict[EnginePlan, Speed] = {}
        self.accuracies: dict[tuple[str, str | None, str | None], Accuracy] = {}
        for kind, plans in self.space.variants.items():
            assert kind.precision is not None
            times, cosine = TYPICAL[kind.precision]
            worst = 1 - (1 - cosine) * chance.uniform(0.5, 2.0)
            # The safe plan's own accuracy is beyond doubt.
            self.accuracies[kind_of(kind)] = accuracy_of(cosine if kind == self._safe else worst)
            base = times * chance.lognormvariate(0, 0.15)
            for plan in plans:
                throughput = 100 * base * chance.lognormvariate(0, 0.08)
                self.speeds[plan] = Speed(throughput, 1 / (200 * base * chance.lognormvariate(0, 0.08)))

    def now(self) -> float:
        """The time that all of this has taken."""
        return self.seconds

    def screen(self, plan: EnginePlan) -> Screening:
        """Costs a load, and a check as long as one."""
        self._load(plan)
        self.seconds += self.load_s
        self.admitted.append(plan)
        if kind_of(plan) in self.failing:
            raise CandidateFailed(self.failing[kind_of(plan)])
        return Screening(self.load_s, 300.0, self.accuracies[kind_of(plan)])

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Noisy measurements of all, on a machine that drifts."""
        assert len({same_loading(plan) for plan in plans}) <= self.capacity, (
            "more engines than there is capacity for"
        )
        for plan in plans:
            self._load(plan)
        before = self._measure(self._safe)
        speeds = {plan: self._measure(plan) for plan in plans}
        return Pass(number, before, self._measure(self._safe), speeds)

    def best_score(self, goal: Goal) -> float:
        """The score of the best plan that is accurate enough, by trying all of the true speeds."""
        return max(
            self.true_score(goal, plan)
            for plan in itertools.chain.from_iterable(self.space.variants.values())
            if goal.refusal(self.accuracies[kind_of(plan)]) is None and kind_of(plan) not in self.failing
        )

    def true_score(self, goal: Goal, plan: EnginePlan) -> float:
        """The score of a plan without noise."""
        return goal.score(self.speeds[plan].over(self.speeds[self._safe]))

    def _load(self, plan: EnginePlan) -> None:
        if same_loading(plan) not in self._loaded:
            self._loaded.add(same_loading(plan))
            self.seconds += self.load_s

    def _measure(self, plan: EnginePlan) -> Speed:
        self.seconds += self.measure_s
        self.measurements += 1
        self._level *= self._chance.lognormvariate(0, self.drift)
        true = self.speeds[plan]
        return Speed(
            true.texts_per_s * self._level * self._chance.lognormvariate(0, self.noise),
            true.latency_s / self._level * self._chance.lognormvariate(0, self.noise),
        )
