"""A closed loop of `vecmill bench` against a server that a benchmark has started."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill_server.bench.load_results import JSON_FILE
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.run import BenchOptions, run_bench

WARM_S = 3
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class LoopServer:
    """The base URL of a server's API, the name of its model (`None`: the first), and a folder for results."""

    url: str
    api: ServerApi
    model: str | None
    folder: Path


def run_closed_loop(
    server: LoopServer, texts: str, *, clients: int, batch: int, seconds: int, seed: int
) -> Mapping[str, Any]:
    """Send `batch` texts a request by so many clients, and return the result as `vecmill bench` saves it.

    `texts` is a text set or a file. What the command prints is dropped. Raises `SetupError` or
    `subprocess.SubprocessError`.
    """
    options = BenchOptions(
        url=server.url,
        api=server.api,
        model=server.model,
        api_key=None,
        texts=[texts],
        batch=batch,
        clients=[clients],
        rates_hz=[],
        bulk_clients=0,
        bulk_batch=1,
        encoding="base64",
        seconds=seconds,
        warm_seconds=min(WARM_S, seconds),
        timeout_s=TIMEOUT_S,
        seed=seed,
        output=server.folder,
    )
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        run_bench(options)
    found: Mapping[str, Any] = json.loads((server.folder / JSON_FILE).read_text("utf-8"))["results"][0]
    return found
