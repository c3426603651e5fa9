"""A mill whose queue is full: one call hangs in the engine, and one text waits, which is all that may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from vecmill import Mill, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class FullMill:
    """The mill, and its engine, which hangs until it is released."""

    mill: Mill
    engine: FakeEngine

    def release(self) -> None:
        """Let the engine go on, so that there is room soon."""
        self.engine.released.set()


@asynccontextmanager
async def fill_queue(description: ModelDescription) -> AsyncIterator[FullMill]:
    """Yield a mill without room. In the end it answers the calls that fill it."""
    engine = FakeEngine(dim=384, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=1))
    async with Mill(description, config, engine=engine) as mill:
        full = FullMill(mill, engine)
        try:
            running = asyncio.ensure_future(mill.embed("hello"))
            await asyncio.to_thread(engine.wait_for_calls, 1)
            waiting = asyncio.ensure_future(mill.embed("world"))
            await asyncio.sleep(0)
            yield full
        finally:
            full.release()
        await asyncio.gather(running, waiting)
