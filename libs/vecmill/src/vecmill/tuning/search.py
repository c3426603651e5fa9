"""Which plans to measure next, until the time is up. Knows no processes and no engines: a `Bench` measures.

Three stages, each over what the one before left:

1. *Kinds*: one plan of each engine, device and precision is loaded, checked, and measured twice; those that
   are not accurate enough once, and never again.
2. *Variants*: all lanes, token budgets and roundings of the best few kinds, once each.
3. *Finals*: successive halving. The best eight are measured again, then the best four until each has been
   measured seven times. A finalist is also loaded and checked for itself.

Plans are measured in passes, together with the safe plan, at most as many loaded engines at once as
the bench has room for.

Source: Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Protocol, TypeVar

from vecmill.clock import Clock
from vecmill.errors import SetupError
from vecmill.plan import EnginePlan
from vecmill.tuning.candidates import Space, by_loading
from vecmill.tuning.choice import Demand, may_be_chosen, median_score
from vecmill.tuning.figures import Admission, Ledger, Pass, kind_of

Item = TypeVar("Item")

KIND_PASSES = 2
KINDS_KEPT = 3
# A kind that is slower than this much of the best is not made up for by any lanes or budget.
KIND_WORTH = 0.7
SEMIFINALISTS, FINALISTS = 8, 4
FINAL_PASSES = 7
# The shares of the time by which the stages end; the rest is for writing the result down.
KINDS_END, VARIANTS_END, FINALS_END = 0.5, 0.7, 0.9
NO_TIME = "there was no time left to try it"


class CandidateFailed(Exception):
    """A plan cannot be loaded, checked or measured. Says why, in a sentence."""


class Bench(Protocol):
    """Where plans are loaded, checked and measured. `room` is how many loaded engines a pass may have."""

    @property
    def room(self) -> int:
        """How many loaded engines a pass may have beside the safe plan's."""
        ...

    def admit(self, plan: EnginePlan) -> Admission:
        """Load and check a plan; the first that succeeds is the safe plan. Raises `CandidateFailed`."""
        ...

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Measure the safe plan, `plans` in an order that `number` decides, and the safe plan again."""
        ...


class Search:
    """One search through `space`, by `bench`, for what `demand` asks.

    `on_step` is told in words what comes next. `ledger` may be read at any time, also after an interruption.
    """

    def __init__(
        self,
        space: Space,
        bench: Bench,
        demand: Demand,
        *,
        limit_s: float,
        clock: Clock,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._space = space
        self._bench = bench
        self._demand = demand
        self._limit_s = limit_s
        self._clock = clock
        self._began = clock()
        self._pass_s = 0.0  # what the last pass took
        self._on_step = on_step
        self.ledger: Ledger | None = None

    def run(self) -> Ledger:
        """Search. Raises `SetupError` if no engine computes the model in fp32 as accurately as asked."""
        ledger = self.ledger = self._open()
        self._try_kinds(ledger)
        self._try_variants(ledger)
        self._run_finals(ledger)
        return ledger

    def _open(self) -> Ledger:
        failures: dict[EnginePlan, str] = {}
        for plan in self._space.safe_kinds:
            self._on_step(f"{describe_plan(plan)}: loading, and computing what to compare with")
            try:
                admission = self._bench.admit(plan)
            except CandidateFailed as failure:
                failures[plan] = str(failure)
                continue
            refusal = self._demand.refusal(admission.accuracy)
            if refusal is not None:
                raise SetupError(f"Not even {describe_plan(plan)} is as accurate as asked: {refusal}.")
            return Ledger(plan, {plan: admission}, failures=failures)
        reasons = "; ".join(f"{plan.engine}: {why}" for plan, why in failures.items())
        raise SetupError(f"No engine here computes this model in fp32. {reasons}.")

    def _try_kinds(self, ledger: Ledger) -> None:
        others = [plan for plan in self._space.kinds if plan not in ledger.plans]
        for number, group in enumerate(_in_groups(others, self._bench.room)):
            self._admit_group(ledger, group, KINDS_END if number else FINALS_END)
            # Once even those that may not be chosen: what accuracy costs belongs in the report.
            self._run_pass(ledger, [plan for plan in group if plan not in ledger.failures])
            allowed = [plan for plan in group if may_be_chosen(ledger, self._demand, plan)]
            for _ in range(KIND_PASSES - 1):
                self._run_pass(ledger, allowed)

    def _admit_group(self, ledger: Ledger, group: Sequence[EnginePlan], share: float) -> None:
        """Load and check each of `group` before that share of the time is used up; the very first anyway."""
        for plan in group:
            if self._has_time(share) or len(ledger.plans) == 1:
                self._admit(ledger, plan)
            else:
                ledger.failures[plan] = NO_TIME

    def _try_variants(self, ledger: Ledger) -> None:
        known = set(ledger.plans)
        kinds = _best(ledger, self._demand, self._allowed(ledger))[:KINDS_KEPT]
        worth = median_score(ledger, self._demand, kinds[0]) + math.log(KIND_WORTH)
        kept = [plan for plan in kinds if median_score(ledger, self._demand, plan) >= worth]
        variants = chain.from_iterable(self._space.variants[kind] for kind in kept)
        groups = by_loading(plan for plan in variants if plan not in known)
        for some in _in_groups(groups, self._bench.room):
            if not self._has_time(VARIANTS_END):
                return
            self._run_pass(ledger, [plan for group in some for plan in group])

    def _run_finals(self, ledger: Ledger) -> None:
        self._run_round(ledger, self._finalists(ledger, SEMIFINALISTS))
        finalists = [
            plan
            for plan in self._finalists(ledger, FINALISTS)
            if plan in ledger.admissions or not self._has_time(FINALS_END) or self._admit(ledger, plan)
        ]
        while self._has_time(FINALS_END):
            finalists = [plan for plan in finalists if plan not in ledger.failures]
            if all(len(ledger.ratios(plan)) >= FINAL_PASSES for plan in finalists):
                return
            self._run_round(ledger, finalists)

    def _finalists(self, ledger: Ledger, count: int) -> list[EnginePlan]:
        """The best `count` plans that have been measured, beside the safe one, which is measured anyway."""
        measured = [plan for plan in self._allowed(ledger) if plan != ledger.safe and ledger.ratios(plan)]
        return _best(ledger, self._demand, measured)[:count]

    def _run_round(self, ledger: Ledger, plans: Sequence[EnginePlan]) -> None:
        """One more measurement of each of `plans`, in as few passes as the bench's room allows."""
        for some in _in_groups(by_loading(plans), self._bench.room):
            if self._has_time(FINALS_END):
                self._run_pass(ledger, [plan for group in some for plan in group])

    def _admit(self, ledger: Ledger, plan: EnginePlan) -> bool:
        """Load and check a plan; say whether it may be chosen."""
        self._on_step(f"{describe_plan(plan)}: loading and checking")
        try:
            ledger.admissions[plan] = self._bench.admit(plan)
        except CandidateFailed as failure:
            ledger.failures[plan] = str(failure)
        return may_be_chosen(ledger, self._demand, plan)

    def _run_pass(self, ledger: Ledger, plans: Sequence[EnginePlan]) -> None:
        if not plans:
            return
        number = len(ledger.passes) + 1
        names = ", ".join(dict.fromkeys(f"{plan.engine} {plan.precision}" for plan in plans))
        self._on_step(f"pass {number}: {names}")
        began = self._clock()
        done = self._bench.run_pass(number, plans)
        self._pass_s = self._clock() - began
        ledger.passes.append(done)
        ledger.failures.update(done.failures)

    def _allowed(self, ledger: Ledger) -> list[EnginePlan]:
        return [plan for plan in ledger.plans if may_be_chosen(ledger, self._demand, plan)]

    def _has_time(self, share: float) -> bool:
        """Whether another pass is likely to end before that share of the time is used up."""
        return self._clock() - self._began + self._pass_s < share * self._limit_s


def describe_plan(plan: EnginePlan) -> str:
    """A plan in a few words: `openvino bf16, calls on 1 or 2 cores, 512 tokens, lengths in 8s`."""
    engine, device, precision = kind_of(plan)
    parts = [f"{engine} {precision or ''}".strip() + (f" on {device}" if device not in (None, "cpu") else "")]
    if plan.lane_widths:
        widths = " or ".join(map(str, plan.lane_widths))
        parts.append(f"calls on {widths} {'core' if plan.lane_widths == (1,) else 'cores'}")
    if plan.max_batch_tokens is not None:
        parts.append(f"{plan.max_batch_tokens} tokens")
    if plan.length_multiple is not None:
        parts.append(f"lengths in {plan.length_multiple}s")
    return ", ".join(parts)


def _best(ledger: Ledger, demand: Demand, plans: Iterable[EnginePlan]) -> list[EnginePlan]:
    """`plans`, the best first."""
    return sorted(plans, key=lambda plan: -median_score(ledger, demand, plan))


def _in_groups(items: Iterable[Item], size: int) -> Iterable[list[Item]]:
    left = iter(items)
    while group := list(islice(left, size)):
        yield group
