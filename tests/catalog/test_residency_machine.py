"""Whatever happens in whatever order, memory stays in its budget, and every request ends exactly once."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catalog.residency_stage import BASE_MB, Content, Stage, settle
from vecmill.errors import CorruptModel, QueueFull
from vecmill_server.base.errors import ModelUnavailable, NoRoom
from vecmill_server.catalog.residents import Resident, ResidentPlace

pytestmark = pytest.mark.promise("answered-once", "no-starvation")

T = TypeVar("T")

BUDGET_MB = 1_000.0
# What may be estimated too low, in parts of the estimate.
ERROR = 0.1
TIMEOUT_S = 30.0
REFUSALS = (ModelUnavailable, NoRoom, QueueFull)


@dataclass(eq=False)
class Asking:
    """A request: the task that waits for its lease, and whether the test has cancelled it."""

    resident: Resident
    task: "asyncio.Task[None]"
    is_cancelled: bool = False


class ResidencyMachine(RuleBasedStateMachine):
    """Asks, answers, cancels, loads, fails and lets time pass at random; mirrors what must be true."""

    @initialize(models=st.lists(st.tuples(st.integers(50, 700), st.floats(0, ERROR)), min_size=1, max_size=6))
    def start(self, models: list[tuple[int, float]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.stage = self.run(self.make_stage(models))
        self.askings: list[Asking] = []
        self.held: list[Resident] = []

    async def make_stage(self, models: list[tuple[int, float]]) -> Stage:
        stage = Stage(budget_mb=BUDGET_MB, waits=True)
        for index, (size, error) in enumerate(models):
            stage.add(f"model-{index}", size, real_mb=size * (1 + error))
        return stage

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 10))

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function that needs the event loop."""

        async def call() -> None:
            function(*arguments)

        self.run(call())

    def settle(self) -> None:
        self.run(settle())
        for asking in [each for each in self.askings if each.task.done()]:
            self.askings.remove(asking)
            if asking.task.cancelled():
                assert asking.is_cancelled
            elif (error := asking.task.exception()) is None:
                self.held.append(asking.resident)
            else:
                assert isinstance(error, REFUSALS), error

    def loading(self) -> list[Content]:
        return [each for each in self.stage.contents if each.gate is not None and not each.gate.done()]

    @rule(data=st.data(), timeout_s=st.floats(1, TIMEOUT_S), client=st.sampled_from(["a", "b", None]))
    def ask(self, data: st.DataObject, timeout_s: float, client: str | None) -> None:
        resident = data.draw(st.sampled_from(self.stage.contents)).resident
        task = self.loop.create_task(self.stage.residency.acquire(resident, timeout_s, client))
        self.askings.append(Asking(resident, task))
        self.settle()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), keep_s=st.sampled_from([None, 0.0, 10.0, math.inf]))
    def answer(self, data: st.DataObject, keep_s: float | None) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.call(self.stage.residency.release, self.held.pop(index), keep_s)
        if data.draw(st.booleans()):
            self.settle()

    @precondition(lambda self: self.askings)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        asking = data.draw(st.sampled_from(self.askings))
        asking.is_cancelled = True
        asking.task.cancel()
        if data.draw(st.booleans()):
            self.settle()

    @precondition(lambda self: self.loading())
    @rule(data=st.data(), fails=st.booleans())
    def end_load(self, data: st.DataObject, fails: bool) -> None:
        content = data.draw(st.sampled_from(self.loading()))
        content.error = CorruptModel("The weights are damaged.") if fails else None
        assert content.gate is not None
        content.gate.set_result(None)
        if data.draw(st.booleans()):
            self.settle()

    @rule(data=st.data(), keep_s=st.sampled_from([0.0, 60.0, math.inf]))
    def keep(self, data: st.DataObject, keep_s: float) -> None:
        resident = data.draw(st.sampled_from(self.stage.contents)).resident
        self.call(self.stage.residency.keep, resident, keep_s)
        self.settle()

    @rule(seconds=st.floats(0.1, 400))
    def pass_time(self, seconds: float) -> None:
        self.call(self.stage.fire, seconds)
        self.settle()

    @invariant()
    def memory_is_within_the_budget(self) -> None:
        running = sum(each.real_mb for each in self.loading())
        assert self.stage.measure_mb() + running <= BUDGET_MB * (1 + ERROR)
        assert len(self.loading()) <= 1

    @invariant()
    def leases_are_those_of_the_requests(self) -> None:
        self.settle()
        for content in self.stage.contents:
            assert content.resident.leases == self.held.count(content.resident)
            if content.resident.leases:
                assert content.is_in_memory

    @invariant()
    def at_most_one_timer_waits_for_an_expiry(self) -> None:
        waiting = self.stage.residency.waiting_count
        # Each request that waits has one, and so has a load that waits for room.
        assert len(self.stage.timers) <= waiting + 2

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.settle()
        for _ in range(200):
            if not (self.askings or self.held or self.loading()):
                break
            for content in self.loading():
                content.error = None
                assert content.gate is not None
                content.gate.set_result(None)
            self.settle()
            while self.held:
                self.call(self.stage.residency.release, self.held.pop())
            self.pass_time(1.0)
        assert self.askings == []
        assert self.held == []
        assert self.loading() == []
        self.pass_time(TIMEOUT_S)
        for content in self.stage.contents:
            self.call(self.stage.residency.keep, content.resident, 0)
        self.settle()
        self.pass_time(1e4)
        residency = self.stage.residency
        assert residency.waiting_count == 0
        assert {each.place for each in residency} == {ResidentPlace.OUT}
        assert self.stage.measure_mb() == BASE_MB
        assert not self.stage.timers
        self.run(residency.close())
        self.loop.close()


TestResidency = ResidencyMachine.TestCase
TestResidency.settings = settings(
    max_examples=30, stateful_step_count=30, phases=set(Phase) - {Phase.explain}
)
