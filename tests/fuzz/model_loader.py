"""Loads model directories in a process of its own, one after the other, and measures each.

Reads a line of JSON for each directory, and writes a line with its outcome: whether the model answered with
finite values, the error if not, the seconds of processor time, and the memory above that before the model.
"""

import json
import logging
import resource
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from support.drawn_pictures import draw_picture, write_picture
from vecmill import sync
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import RequestError, SetupError
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.requests import (
    Classify,
    ClassifyTokens,
    Embed,
    EmbedPictures,
    EmbedSparse,
    EmbedTokens,
    Picture,
    Rerank,
)

# Of memory, apart from mapped files. A test allows far less, and what takes more may not take the machine's.
MOST_BYTES = 3 * 2**30
TEXTS = ("a cat sleeps on the warm roof", "vectors")
_MIB = 2**20


def main() -> None:
    """Answer lines of standard input until it ends."""
    logging.disable(logging.CRITICAL)
    sys.modules["torch"] = None  # type: ignore[assignment]  # as where the server is installed
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(measure(Path(order["directory"]), order["task"], Path(order["cache"]))), flush=True)


def measure(directory: Path, task: str | None, cache: Path) -> dict[str, Any]:
    """Load a model and run it once. Return the outcome."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before, start_s = memory_mib("VmRSS"), time.process_time()
    outcome: dict[str, Any] = {"error": None, "message": None}
    try:
        run_model(directory, task, cache)
    except BaseException as error:
        kind = "refused" if isinstance(error, SetupError) else "raised"
        outcome = {"error": f"{kind} {type(error).__name__}", "message": str(error)}
    outcome["seconds"] = time.process_time() - start_s
    outcome["memory_mib"] = memory_mib("VmHWM") - before
    shutil.rmtree(cache, ignore_errors=True)
    return outcome


def run_model(directory: Path, task: str | None, cache: Path) -> None:
    """Load a model and answer one request. Raises whatever that raises."""
    description = describe_model(locate_model(directory), None if task is None else Task(task))
    # One core and one lane, so that a model loads fast.
    with sync.SyncMill(description, MillConfig(cores=1, cache_dir=cache)) as mill, suppress(RequestError):
        answer(mill, description)


def answer(mill: sync.SyncMill, description: ModelDescription) -> None:
    """Answer one request of the model's task. Raises `AssertionError` for values that are not finite."""
    match description.task:
        case Task.EMBED if description.pictures is not None:
            picture = Picture(write_picture(draw_picture("RGB", 90, 40), "PNG"))
            assert np.isfinite(mill.run(EmbedPictures((*TEXTS, picture))).embeddings).all()
        case Task.EMBED:
            assert np.isfinite(mill.run(Embed(TEXTS)).embeddings).all()
        case Task.RERANK:
            assert np.isfinite(mill.run(Rerank(TEXTS[:1], TEXTS)).scores).all()
        case Task.CLASSIFY:
            mill.run(Classify(TEXTS))
        case Task.CLASSIFY_TOKENS:
            mill.run(ClassifyTokens(TEXTS))
        case Task.SPARSE:
            mill.run(EmbedSparse(TEXTS))
        case Task.MULTI_VECTOR:
            mill.run(EmbedTokens(TEXTS))


def memory_mib(key: str) -> float:
    """Return an entry of this process's status, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024 / _MIB
    raise KeyError(key)


if __name__ == "__main__":
    main()
