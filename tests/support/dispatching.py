"""A dispatcher over the fake engine, with its clock, its events and its faults in hand."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.scheduler import Ask
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig
from vecmill.engines.fake import FakeEngine, FaultScript, hash_row
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import BatchRecord, LaneState, Observer, Rejection

PER_TOKEN_S = 1e-5
TICK_S = 1.0
PATIENCE_S = 20.0


class Time:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Ledger(Observer):
    """Adds up what the dispatcher reports."""

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.batches: list[BatchRecord] = []
        self.lanes: dict[int, LaneState] = {}
        self.rejections: Counter[str] = Counter()
        self._reported = threading.Condition()

    def admitted(self, texts: int, tokens: int) -> None:
        self.texts["admitted"] += texts

    def joined(self, texts: int) -> None:
        self.texts["joined"] += texts

    def done(self, texts: int) -> None:
        self.texts["done"] += texts

    def failed(self, texts: int) -> None:
        self.texts["failed"] += texts

    def expired(self, texts: int) -> None:
        self.texts["expired"] += texts

    def cancelled(self, texts: int) -> None:
        self.texts["cancelled"] += texts

    def rejected(self, reason: Rejection) -> None:
        self.rejections[reason] += 1

    def batch_done(self, record: BatchRecord) -> None:
        self.batches.append(record)

    def lane(self, lane: int, state: LaneState) -> None:
        with self._reported:
            self.lanes[lane] = state
            self._reported.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true at a report of a lane's state."""
        with self._reported:
            assert self._reported.wait_for(condition, PATIENCE_S)

    def assert_reconciled(self) -> None:
        texts = self.texts
        ended = texts["done"] + texts["failed"] + texts["expired"] + texts["cancelled"]
        assert texts["admitted"] == ended, texts


class Stage:
    """A dispatcher over the fake engine, with everything around it in hand."""

    def __init__(self, engine: FakeEngine, cores: int, config: MillConfig, per_token_s: float) -> None:
        self.engine = engine
        self.budget = CoreBudget(cores)
        self.time = Time()
        self.ledger = Ledger()
        self.dispatcher = Dispatcher(
            engine,
            config,
            budget=self.budget,
            observer=self.ledger,
            cost=CostModel(0.0, per_token_s),
            clock=self.time,
        )

    async def submit(
        self,
        *texts: int,
        length: int = 10,
        timeout_s: float | None = None,
        priority: Priority | None = None,
        client: str | None = None,
    ) -> QueuedRequest:
        sequences = [TokenSequence.of([text] * length) for text in texts]
        return await self.dispatcher.submit(sequences, Ask(priority, client, timeout_s))

    def submit_soon(
        self, *texts: int, length: int = 10, timeout_s: float | None = None, client: str | None = None
    ) -> asyncio.Task[QueuedRequest]:
        return asyncio.ensure_future(self.submit(*texts, length=length, timeout_s=timeout_s, client=client))

    async def until_called(self, times: int) -> None:
        await asyncio.to_thread(self.engine.wait_for_calls, times)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true at a report of a lane's state."""
        await asyncio.to_thread(self.ledger.wait_for, condition)

    @property
    def states(self) -> list[LaneState]:
        """The states of the lanes."""
        return [lane.state for lane in self.dispatcher.lanes.all]

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which the process runs: the timer ticks."""
        while seconds > TICK_S:
            self.stand_still(TICK_S)
            seconds -= TICK_S
        self.stand_still(seconds)

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which the process does not run: the timer ticks at the end alone."""
        self.time.now += seconds
        self.dispatcher.tick()


@asynccontextmanager
async def stage(
    faults: FaultScript | None = None,
    *,
    cores: int = 2,
    config: MillConfig | None = None,
    engine: FakeEngine | None = None,
    per_token_s: float = PER_TOKEN_S,
) -> AsyncIterator[Stage]:
    engine = engine or FakeEngine(lane_widths=(1, cores) if cores > 1 else (1,), faults=faults)
    stage = Stage(engine, cores, config or MillConfig(hang_s=10.0), per_token_s)
    stage.dispatcher.start()
    try:
        yield stage
    finally:
        engine.close()
        await stage.dispatcher.close()
        stage.ledger.assert_reconciled()
        assert stage.budget.free == cores


def row_of(text: int, length: int = 10) -> np.ndarray:
    return hash_row(np.full(length, text), 16)[None]
