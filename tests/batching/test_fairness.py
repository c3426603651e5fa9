"""Models that share cores get them in turns, by the work that each has received."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.scheduler import Ask
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import BatchConfig, MillConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import Observer

ONE_TEXT_A_CALL = MillConfig(hang_s=1e6, batch=BatchConfig(max_batch_tokens=1))
LENGTH = 200  # more than the floor of a batch, so that each text is a call


@dataclass
class Shared:
    """Two models over one core, a clock that moves by a second with each call, and who was called when."""

    now: float = 100.0
    calls: list[str] = field(default_factory=list)
    budget: CoreBudget = field(default_factory=lambda: CoreBudget(1))
    changed: threading.Condition = field(default_factory=threading.Condition)
    dispatchers: dict[str, Dispatcher] = field(default_factory=dict)
    engines: dict[str, FakeEngine] = field(default_factory=dict)

    def add(self, name: str, faults: FaultScript | None = None) -> None:
        shared = self

        class Recorded(FakeEngine):
            def run(self, batch: Batch, *, width: int) -> Embeddings:
                with shared.changed:
                    shared.calls.append(name)
                    shared.now += 1
                    shared.changed.notify_all()
                return super().run(batch, width=width)

        self.engines[name] = Recorded(lane_widths=(1,), faults=faults)
        self.dispatchers[name] = Dispatcher(
            self.engines[name],
            ONE_TEXT_A_CALL,
            budget=self.budget,
            observer=Observer(),
            cost=CostModel(0.0, 1e-6),
            clock=lambda: self.now,
        )

    def submit_soon(self, name: str, text: int) -> asyncio.Task[QueuedRequest]:
        sequence = TokenSequence.of([text] * LENGTH)
        return asyncio.ensure_future(self.dispatchers[name].submit([sequence], Ask(Priority.INTERACTIVE)))


@asynccontextmanager
async def shared_core() -> AsyncIterator[Shared]:
    """Two models; the first call of model "a" hangs until it is released."""
    shared = Shared()
    shared.add("a", FaultScript(calls={0: Fault.HANG}))
    shared.add("b")
    for dispatcher in shared.dispatchers.values():
        dispatcher.start()
    try:
        yield shared
    finally:
        shared.engines["a"].released.set()
        for dispatcher in shared.dispatchers.values():
            await dispatcher.close()


@pytest.mark.promise("no-starvation")
@pytest.mark.parametrize("_", range(5))
async def test_a_busy_model_does_not_keep_the_core_from_the_other(_: int) -> None:
    async with shared_core() as it:
        tasks = [it.submit_soon("a", 0)]
        await asyncio.to_thread(it.engines["a"].wait_for_calls, 1)
        for name, text in [("b", 1), ("a", 2), ("a", 3), ("b", 4), ("a", 5), ("b", 6)]:
            tasks.append(it.submit_soon(name, text))
            await asyncio.sleep(0)
        it.engines["a"].released.set()
        await asyncio.gather(*tasks)
        assert "".join(it.calls) == "abababa"


async def test_a_core_that_was_kept_for_a_text_goes_on_when_the_text_is_given_up() -> None:
    async with shared_core() as it:
        running = it.submit_soon("a", 0)
        await asyncio.to_thread(it.engines["a"].wait_for_calls, 1)
        given_up = it.submit_soon("b", 1)
        await asyncio.sleep(0)
        waiting = it.submit_soon("a", 2)
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        it.engines["a"].released.set()
        await asyncio.gather(running, waiting)
        assert it.calls == ["a", "a"]


async def test_a_model_that_is_closed_gives_its_turn_away() -> None:
    async with shared_core() as it:
        running = it.submit_soon("a", 0)
        await asyncio.to_thread(it.engines["a"].wait_for_calls, 1)
        refused = it.submit_soon("b", 1)
        await asyncio.sleep(0)
        waiting = it.submit_soon("a", 2)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(it.dispatchers["b"].close())
        await asyncio.gather(refused, return_exceptions=True)
        it.engines["a"].released.set()
        await asyncio.gather(running, waiting, closing)
        assert it.calls == ["a", "a"]
