"""Programs of other environments, which have no module of this one and ask no network for anything."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from support.server import stop_server, wait_until_ready

START_S = 300.0
OFFLINE: Mapping[str, str] = MappingProxyType(
    {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
    }
)


def peer_environment() -> dict[str, str]:
    """Return the variables for a program of another environment: without the modules of this one."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, **OFFLINE}


@contextmanager
def peer_server(
    command: Sequence[str],
    port: int,
    log: Path,
    *,
    ready: str = "/docs",
    folder: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Run a server until the block ends; give its URL when it answers at `ready`. Raises `NotStarted`."""
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**peer_environment(), **variables},
            cwd=folder,
        )
    try:
        wait_until_ready(url, process, log, deadline=perf_counter() + START_S, path=ready)
        yield url
    finally:
        stop_server(process)
