"""Infinity as a contestant over pictures: a program in the environment of its peer."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.environments import install_environment
from bench.peers.roster import OFFLINE, PROGRAMS
from support.source_tree import ROOT
from vecmill.values.aliases import FloatArray

ENVIRONMENT = "infinity"


@contextmanager
def infinity_process(
    model: Path, files: Sequence[bytes], folder: Path
) -> Iterator[Callable[[int], tuple[float, float, FloatArray]]]:
    """Load the model in Infinity's engine, and give a function that embeds so many of the files.

    It returns pictures a second, the peak memory in MiB and the first embedding. Raises `NotInstalled`.
    """
    install_environment(ENVIRONMENT)
    folder.mkdir()
    for index, data in enumerate(files):
        (folder / f"{index}.jpg").write_bytes(data)
    variables = {name: value.format(hub=folder / "hub", folder=folder) for name, value in OFFLINE.items()}
    python = ROOT / f".venv/peer-{ENVIRONMENT}/bin/python"
    process = subprocess.Popen(
        [str(python), str(PROGRAMS / "infinity_pictures.py"), str(model), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables, "PYTHONPATH": ""},
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reads, writes = process.stdout, process.stdin

    def embed(count: int) -> tuple[float, float, FloatArray]:
        writes.write(f"{count}\n")
        writes.flush()
        found: dict[str, Any] = json.loads(reads.readline())
        return count / found["seconds"], found["peak_mib"], np.array(found["row"], np.float32)

    try:
        assert reads.readline().strip() == "ready", "Infinity did not start"
        yield embed
    finally:
        writes.close()
        process.wait(timeout=30)
        reads.close()
