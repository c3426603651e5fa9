"""Compute texts of several lengths with one engine, and say what each took.

Run as a process of its own: `long_text_probe.py MODEL CACHE ENGINE WIDTH LENGTH...`. Prints JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.process_use import status_mb
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.hardware.cores import available_cores
from vecmill.hardware.memory import resident_mb
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

SEED = 20_260_108
SHORT_TOKENS, SHORT_CALLS = 128, 10
PEAK = Path("/proc/self/clear_refs")


def time_call(engine: Engine, batch: Batch, width: int) -> float:
    began = time.perf_counter()
    engine.run(batch, width=width)
    return time.perf_counter() - began


def time_short(engine: Engine, batch: Batch, width: int) -> float:
    """The milliseconds of a short text: the median of some calls."""
    return 1000 * float(np.median([time_call(engine, batch, width) for _ in range(SHORT_CALLS)]))


def main(model: Path, cache_dir: Path, name: str, width: int, lengths: Sequence[int]) -> None:
    """Measure one text of each length, and a short text after each."""
    description = describe_model(locate_model(model))
    random = np.random.default_rng(SEED)

    def text(tokens: int) -> Batch:
        return Batch.of([TokenSequence.of(random.integers(5, 1000, tokens).tolist())])

    engine = load_engine(description, EnginePlan(name), cores=available_cores(), cache_dir=cache_dir)
    engine.warm_up()
    short = text(SHORT_TOKENS)
    time_short(engine, short, width)
    told = []
    for length in lengths:
        before_ms = time_short(engine, short, width)
        loaded_mb, held_mb = status_mb("self", "VmRSS"), resident_mb() or 0.0
        PEAK.write_text("5", encoding="ascii")  # forgets the largest memory so far
        used_s = time.process_time()
        took_s = time_call(engine, text(length), width)
        used_s = time.process_time() - used_s
        told.append(
            {
                "length": length,
                "seconds": took_s,
                "processor_s": used_s,
                "peak_mb": status_mb("self", "VmHWM") - loaded_mb,
                # Weights that two sessions map from one file are in memory once.
                "kept_mb": (resident_mb() or 0.0) - held_mb,
                "short_before_ms": before_ms,
                "short_after_ms": time_short(engine, short, width),
            }
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), list(map(int, sys.argv[5:])))
