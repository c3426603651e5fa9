"""The search for the best plan within a time limit, over the measurements of a `Bench`.

The search has three stages:

1. *Kinds*: one plan of each engine, device and precision is loaded, checked and measured twice. Plans that
   are not accurate enough are measured once.
2. *Variants*: all lane widths, token budgets and roundings of the best kinds are measured once.
3. *Finals*: successive halving. The best eight plans are measured again. Then the best four plans are
   measured until each has seven measurements. Each finalist is also loaded and checked.

Plans are measured in passes together with the safe plan. The capacity of the bench limits the number of
loaded engines in a pass.

Source: Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Protocol, TypeVar

from vecmill.commands.optimize.candidates import SearchSpace, by_loading
from vecmill.commands.optimize.choice import Goal, may_be_chosen, median_score
from vecmill.commands.optimize.measurements import Measurements, Pass, Screening
from vecmill.errors import SetupError
from vecmill.serving_plan.plans import describe_plan
from vecmill.values.clock import Clock
from vecmill.values.engine_plan import EnginePlan

Item = TypeVar("Item")

KIND_PASSES = 2
KINDS_KEPT = 3
# The variants of a kind that is slower than this share of the best kind cannot become the best.
KIND_WORTH = 0.7
SEMIFINALISTS, FINALISTS = 8, 4
FINAL_PASSES = 7
# The shares of the time limit by which the stages end; the rest is for the output directory.
KINDS_END, VARIANTS_END, FINALS_END = 0.5, 0.7, 0.9
NO_TIME = "the time limit was reached"


class CandidateFailed(Exception):
    """Raised for a plan that cannot be loaded, checked or measured, with the reason as a sentence."""


class Bench(Protocol):
    """The interface of a bench, which loads, checks and measures plans."""

    @property
    def capacity(self) -> int:
        """The number of loaded engines that a pass can measure beside the safe plan."""
        ...

    def screen(self, plan: EnginePlan) -> Screening:
        """Load and check a plan; the first success becomes the safe plan. Raises `CandidateFailed`."""
        ...

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Measure the safe plan, `plans` in an order that `number` seeds, and the safe plan again."""
        ...


class Search:
    """One search through `space` for a plan that meets `goal`, with measurements of `bench`.

    `on_step` gets a description of each step. `measured` can be read at any time, even after an interruption.
    """

    def __init__(
        self,
        space: SearchSpace,
        bench: Bench,
        goal: Goal,
        *,
        limit_s: float,
        clock: Clock,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._space = space
        self._bench = bench
        self._goal = goal
        self._limit_s = limit_s
        self._clock = clock
        self._began = clock()
        self._pass_s = 0.0  # the duration of the last pass
        self._on_step = on_step
        self.measured: Measurements | None = None

    def run(self) -> Measurements:
        """Search. Raises `SetupError` if no engine is accurate enough in fp32."""
        measured = self.measured = self._open()
        self._try_kinds(measured)
        self._try_variants(measured)
        self._run_finals(measured)
        return measured

    def _open(self) -> Measurements:
        failures: dict[EnginePlan, str] = {}
        for plan in self._space.safe_kinds:
            self._on_step(f"{describe_plan(plan)}: loading, and computing the reference")
            try:
                screening = self._bench.screen(plan)
            except CandidateFailed as failure:
                failures[plan] = str(failure)
                continue
            refusal = self._goal.refusal(screening.accuracy)
            if refusal is not None:
                raise SetupError(f"Not even {describe_plan(plan)} is as accurate as required: {refusal}.")
            return Measurements(plan, {plan: screening}, failures=failures)
        reasons = "; ".join(f"{plan.engine}: {why}" for plan, why in failures.items())
        raise SetupError(f"No engine on this machine computes this model in fp32. {reasons}.")

    def _try_kinds(self, measured: Measurements) -> None:
        others = [plan for plan in self._space.kinds if plan not in measured.plans]
        for number, group in enumerate(_in_groups(others, self._bench.capacity)):
            self._admit_group(measured, group, KINDS_END if number else FINALS_END)
            # Inaccurate plans are measured once too, since the report shows their speed.
            self._run_pass(measured, [plan for plan in group if plan not in measured.failures])
            allowed = [plan for plan in group if may_be_chosen(measured, self._goal, plan)]
            for _ in range(KIND_PASSES - 1):
                self._run_pass(measured, allowed)

    def _admit_group(self, measured: Measurements, group: Sequence[EnginePlan], share: float) -> None:
        """Load and check the plans of `group`, at least one, until `share` of the time is used."""
        for plan in group:
            if self._has_time(share) or len(measured.plans) == 1:
                self._admit(measured, plan)
            else:
                measured.failures[plan] = NO_TIME

    def _try_variants(self, measured: Measurements) -> None:
        known = set(measured.plans)
        kinds = _best(measured, self._goal, self._allowed(measured))[:KINDS_KEPT]
        worth = median_score(measured, self._goal, kinds[0]) + math.log(KIND_WORTH)
        kept = [plan for plan in kinds if median_score(measured, self._goal, plan) >= worth]
        variants = chain.from_iterable(self._space.variants[kind] for kind in kept)
        groups = by_loading(plan for plan in variants if plan not in known)
        for some in _in_groups(groups, self._bench.capacity):
            if not self._has_time(VARIANTS_END):
                return
            self._run_pass(measured, [plan for group in some for plan in group])

    def _run_finals(self, measured: Measurements) -> None:
        self._run_round(measured, self._finalists(measured, SEMIFINALISTS))
        finalists = [
            plan
            for plan in self._finalists(measured, FINALISTS)
            if plan in measured.screenings or not self._has_time(FINALS_END) or self._admit(measured, plan)
        ]
        while self._has_time(FINALS_END):
            finalists = [plan for plan in finalists if plan not in measured.failures]
            if all(len(measured.ratios(plan)) >= FINAL_PASSES for plan in finalists):
                return
            self._run_round(measured, finalists)

    def _finalists(self, measured: Measurements, count: int) -> list[EnginePlan]:
        """Return the best `count` measured plans beside the safe plan, which is in every pass."""
        others = [plan for plan in self._allowed(measured) if plan != measured.safe and measured.ratios(plan)]
        return _best(measured, self._goal, others)[:count]

    def _run_round(self, measured: Measurements, plans: Sequence[EnginePlan]) -> None:
        """Measure each of `plans` once more, in as few passes as the bench's capacity allows."""
        for some in _in_groups(by_loading(plans), self._bench.capacity):
            if self._has_time(FINALS_END):
                self._run_pass(measured, [plan for group in some for plan in group])

    def _admit(self, measured: Measurements, plan: EnginePlan) -> bool:
        """Load and check a plan, and return whether it can be chosen."""
        self._on_step(f"{describe_plan(plan)}: loading and checking")
        try:
            measured.screenings[plan] = self._bench.screen(plan)
        except CandidateFailed as failure:
            measured.failures[plan] = str(failure)
        return may_be_chosen(measured, self._goal, plan)

    def _run_pass(self, measured: Measurements, plans: Sequence[EnginePlan]) -> None:
        if not plans:
            return
        number = len(measured.passes) + 1
        names = ", ".join(dict.fromkeys(f"{plan.engine} {plan.precision}" for plan in plans))
        self._on_step(f"pass {number}: {names}")
        began = self._clock()
        done = self._bench.run_pass(number, plans)
        self._pass_s = self._clock() - began
        measured.passes.append(done)
        measured.failures.update(done.failures)

    def _allowed(self, measured: Measurements) -> list[EnginePlan]:
        return [plan for plan in measured.plans if may_be_chosen(measured, self._goal, plan)]

    def _has_time(self, share: float) -> bool:
        """Return whether another pass is likely to end before `share` of the time is used."""
        return self._clock() - self._began + self._pass_s < share * self._limit_s


def _best(measured: Measurements, goal: Goal, plans: Iterable[EnginePlan]) -> list[EnginePlan]:
    """Return `plans`, the best first."""
    return sorted(plans, key=lambda plan: -median_score(measured, goal, plan))


def _in_groups(items: Iterable[Item], size: int) -> Iterable[list[Item]]:
    left = iter(items)
    while group := list(islice(left, size)):
        yield group
