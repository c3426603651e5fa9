"""A real run of the dispatcher and the onnx engine under a load, in a process with so many processors.

PYTHONPATH=tests .venv/test/bin/python -m bench.simulation.measured run.json --cores 2 --load queries-32

The model is all-MiniLM-L6-v2. Requests are random token ids, as many as the simulation gives the same load,
and go to the dispatcher directly: neither HTTP nor tokenisation. Writes the latencies, the time of the event
loop's thread, and the size and the times of each call, as JSON.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.simulation.answers import Answers
from bench.simulation.loads import Load, Stream
from vecmill.batching.dispatcher import Dispatcher
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import OverloadError
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.system_calls import usable_processors
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EnginePlan
from vecmill.values.observer import Observer

VOCABULARY = (1_000, 30_000)


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """One call: the tokens of its texts, its cores, its times, and the processor time of its thread."""

    lengths: list[int]
    width: int
    began_at: float
    ended_at: float
    cpu_s: float
    lane: str


@dataclass(slots=True)
class MeasuredRun(Answers):
    """What a real run finds after its warm-up. `loop_s` is the processor time of the event loop's thread."""

    loop_s: float = 0.0
    calls: list[MeasuredCall] = field(default_factory=list)


class RecordingEngine:
    """An engine that records its calls."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.info = engine.info
        self.calls: list[MeasuredCall] = []

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Warm the engine up."""
        return self._engine.warm_up(texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute, and record the call."""
        began_at, cpu_s = time.monotonic(), time.thread_time()
        try:
            return self._engine.run(batch, width=width)
        finally:
            spent_s, ended_at = time.thread_time() - cpu_s, time.monotonic()
            lane = threading.current_thread().name
            self.calls.append(MeasuredCall(batch.lengths.tolist(), width, began_at, ended_at, spent_s, lane))

    def renew(self) -> None:
        """Open new sessions."""
        self._engine.renew()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


class LoadedDispatcher:
    """A dispatcher with its clients."""

    def __init__(self, dispatcher: Dispatcher, load: Load, seed: int) -> None:
        self._dispatcher = dispatcher
        self._load = load
        self._seed = seed
        self._dice = np.random.default_rng(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self.run = MeasuredRun()

    def start(self) -> None:
        """Start the clients."""
        for stream in self._load.streams:
            for client in range(stream.clients):
                self._spawn(self._ask_for_ever(stream, stream.requests(self._seed, client)))
            if not stream.clients:
                self._spawn(self._arrive(stream))

    async def stop(self) -> None:
        """Stop the clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask_for_ever(self, stream: Stream, requests: Iterator[tuple[int, ...]]) -> None:
        while True:
            await self._ask(stream, next(requests))

    async def _arrive(self, stream: Stream) -> None:
        began_at = time.monotonic()
        requests = stream.requests(self._seed)
        for at in stream.arrivals(self._seed):
            await asyncio.sleep(max(0.0, began_at + at - time.monotonic()))
            self._spawn(self._ask(stream, next(requests)))

    async def _ask(self, stream: Stream, lengths: tuple[int, ...]) -> None:
        began_at = time.monotonic()
        sequences = [
            TokenSequence.of(self._dice.integers(*VOCABULARY, length).tolist()) for length in lengths
        ]
        try:
            await self._dispatcher.submit(sequences)
        except OverloadError:
            self.run.refused += 1
            await asyncio.sleep(0.05)
            return
        self.run.latencies_s.setdefault(stream.name, []).append(time.monotonic() - began_at)


async def measure(load: Load, cores: int, seconds: float, *, seed: int, warm_up_s: float) -> MeasuredRun:
    """Run a load on `cores` cores and return what was found."""
    with tempfile.TemporaryDirectory(prefix="vecmill-simulation-") as folder:
        loaded = load_engine(
            describe_model(locate_model()), EnginePlan("onnx"), cores=cores, cache_dir=Path(folder)
        )
        engine = RecordingEngine(loaded)
        cost = engine.warm_up()
        dispatcher = Dispatcher(
            engine, MillConfig(), budget=CoreBudget(cores), observer=Observer(), cost=cost
        )
        dispatcher.start()
        clients = LoadedDispatcher(dispatcher, load, seed)
        clients.start()
        await asyncio.sleep(warm_up_s)
        clients.run = MeasuredRun()
        engine.calls.clear()
        began_at, loop_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(seconds)
        run = clients.run
        run.seconds, run.loop_s = time.monotonic() - began_at, time.thread_time() - loop_s
        run.calls = list(engine.calls)
        clients.run = MeasuredRun()
        await clients.stop()
        await dispatcher.close()
        engine.close()
        return run


def read_run(file: Path) -> MeasuredRun:
    """Return a run from its file."""
    values = json.loads(file.read_bytes())
    calls = [MeasuredCall(**call) for call in values.pop("calls")]
    return MeasuredRun(**values, calls=calls)


def main(arguments: Sequence[str] | None = None) -> int:
    import uvloop

    from bench.simulation import scale
    from bench.simulation.validation import LOADS

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="Where the result is written.")
    parser.add_argument("--load", choices=sorted({*LOADS, *scale.LOADS}), required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="Requests a second, of streams that arrive.")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, sorted(usable_processors())[: options.cores])
    made = LOADS.get(options.load)
    load = made(options.rate) if made else scale.LOADS[options.load](options.cores)
    run = uvloop.run(measure(load, options.cores, options.seconds, seed=options.seed, warm_up_s=3.0))
    options.file.write_text(json.dumps(asdict(run)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
