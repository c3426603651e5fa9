"""A residency of models that are loaded when a test says so, with a clock and timers that the test moves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from vecmill.serving_plan.needs import LoadEstimate
from vecmill_server.catalog.residency import Residency
from vecmill_server.catalog.residents import Resident

BASE_MB = 200.0
KEEP_S = 300.0


@dataclass(eq=False)
class ScriptedTimer:
    """A timer that `Stage.pass_time` fires."""

    due_at: float
    callback: Callable[[], None]
    timers: list["ScriptedTimer"]

    def cancel(self) -> None:
        if self in self.timers:
            self.timers.remove(self)


@dataclass(eq=False)
class Content:
    """What is loaded when the test says so. It takes `real_mb`, whatever it says before."""

    name: str
    stage: "Stage"
    estimate: LoadEstimate
    real_mb: float
    error: BaseException | None = None
    is_in_memory: bool = False
    loads: int = 0
    gate: "asyncio.Future[None] | None" = None
    resident: Resident = field(init=False)

    async def load(self) -> None:
        self.loads += 1
        if self.stage.waits:
            self.gate = asyncio.get_running_loop().create_future()
            await self.gate
        if self.error is not None:
            raise self.error
        self.is_in_memory = True

    async def drop(self) -> None:
        assert not self.resident.leases
        await asyncio.sleep(0)
        assert not self.resident.leases
        self.is_in_memory = False


@dataclass(eq=False)
class Stage:
    """A residency with a clock and timers that the test moves. With `waits`, loads end when it says so."""

    budget_mb: float = 1_000.0
    keep_s: float = KEEP_S
    waits: bool = False
    now: float = 0.0
    timers: list[ScriptedTimer] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.residency = Residency(
            self.budget_mb,
            self.keep_s,
            base_mb=BASE_MB,
            measure_mb=self.measure_mb,
            clock=lambda: self.now,
            timer=self.set_timer,
        )

    def measure_mb(self) -> float:
        return BASE_MB + sum(each.real_mb for each in self.contents if each.is_in_memory)

    def set_timer(self, delay_s: float, callback: Callable[[], None]) -> ScriptedTimer:
        timer = ScriptedTimer(self.now + delay_s, callback, self.timers)
        self.timers.append(timer)
        return timer

    def add(self, name: str, held_mb: float = 300.0, real_mb: float | None = None) -> Resident:
        estimate = LoadEstimate(held_mb, held_mb, held_mb)
        content = Content(name, self, estimate, held_mb if real_mb is None else real_mb)
        self.contents.append(content)
        content.resident = self.residency.add(content)
        return content.resident

    def fire(self, seconds: float) -> None:
        """Let time pass, and fire the timers that are due."""
        self.now += seconds
        for timer in [each for each in self.timers if each.due_at <= self.now]:
            timer.cancel()
            timer.callback()

    async def pass_time(self, seconds: float) -> None:
        await settle()
        self.fire(seconds)
        await settle()

    async def use(self, resident: Resident, keep_s: float | None = None) -> None:
        """A request that takes no time once it has its lease."""
        await self.residency.acquire(resident, 30.0)
        self.residency.release(resident, keep_s)
        await settle()

    def ask(
        self, resident: Resident, timeout_s: float = 30.0, client: str | None = None
    ) -> "asyncio.Task[None]":
        return asyncio.create_task(self.residency.acquire(resident, timeout_s, client))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
