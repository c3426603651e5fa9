"""Load a model in the serving environment, run texts through all lanes, and say what it took.

Run as a process of its own: `size_probe.py FOLDER CACHE TEXTS PRECISION`, FOLDER as `size_models` writes it.
Prints JSON. Rows that transformers did not compute are compared with those of vecmill's own fp32 engine,
after everything else was measured.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.process_use import proportional_mb, status_mb
from support.texts import mixed_texts
from vecmill import Mill
from vecmill.config import MillConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine, load_exact_engine
from vecmill.engines.base import Engine
from vecmill.hardware.cores import available_cores
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision

SEED = 20_260_104
CLIENTS = 64
# Memory is what counts here, also on a slow machine.
PATIENT = MillConfig(queue=QueueConfig(timeout_s=600.0, target_wait_s=600.0))


async def run_all(description: ModelDescription, engine: Engine, texts: Sequence[str]) -> float:
    """Send `texts` through a mill, many at a time and then some alone; the memory afterwards, in MB."""
    async with Mill(description, PATIENT, engine=engine) as mill:
        limit = asyncio.Semaphore(CLIENTS)

        async def send(text: str) -> None:
            async with limit:
                if description.task is Task.RERANK:
                    await mill.rerank("what is a name?", [text])
                else:
                    await mill.embed(text)

        await asyncio.gather(*map(send, texts))
        for text in texts[:10]:
            await send(text)
        return proportional_mb("self")


def compute_rows(engine: Engine, sequences: Sequence[TokenSequence]) -> list[np.ndarray]:
    """The rows of all texts together, and of each alone."""
    width = engine.info.lane_widths[-1]
    together = engine.run(Batch.of(sequences), width=width).values
    alone = [engine.run(Batch.of([one]), width=width).values for one in sequences]
    return [together, np.concatenate(alone)]


def cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of each row with the other of the same text."""
    found: np.ndarray = (
        (rows * others).sum(axis=1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(others, axis=1)
    )
    return found


def measure_use(folder: Path, description: ModelDescription, engine: Engine, texts: int) -> dict[str, float]:
    """The accuracy of the engine, and its memory after `texts` texts."""
    expected = np.load(folder / "expected.npz")
    ids = np.split(expected["ids"], np.cumsum(expected["lengths"])[:-1])
    sequences = [TokenSequence.of(one.tolist()) for one in ids]
    found = compute_rows(engine, sequences)
    pss_mb = asyncio.run(run_all(description, engine, mixed_texts(SEED, texts)))
    rows = expected["rows"]
    if not len(rows):
        rows = compute_rows(load_exact_engine(description, cores=available_cores()), sequences)[1]
    return {
        "largest_difference": max(float(np.abs(one - rows).max()) for one in found),
        "worst_cosine": min(float(cosines(one, rows).min()) for one in found),
        "pss_mb": pss_mb,
    }


def main(folder: Path, cache_dir: Path, texts: int, precision: Precision) -> None:
    """Measure one start, and its use if there are `texts`."""
    began = time.perf_counter()
    description = describe_model(locate_model(folder / "model"))
    plan = EnginePlan(precision=precision)
    engine = load_engine(description, plan, cores=available_cores(), cache_dir=cache_dir)
    engine.warm_up()
    start_s = time.perf_counter() - began
    told = {"start_s": start_s, "peak_mb": status_mb("self", "VmHWM")}
    if texts:
        told |= measure_use(folder, description, engine, texts)
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Precision(sys.argv[4]))
