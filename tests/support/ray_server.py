"""`vecmill ray serve` on a Ray cluster of its own, in the environment that has Ray."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from support.server import LiveServer, NotStarted, free_port, wait_until_ready
from support.source_tree import ROOT

RAY = ROOT / ".venv/ray"
# A replica starts a process, imports Ray and loads a model.
START_S = 300.0
# Enough for the logical resources of small models; the processes share the cores that there are.
CLUSTER_CORES = 8
OBJECT_STORE_BYTES = 200_000_000
PORTS = (
    "dashboard-agent-grpc",
    "dashboard-agent-listen",
    "metrics-export",
    "ray-client-server",
    "runtime-env-agent",
)
# Workers as important as other processes, and a start that may be slow on a busy machine.
RAY_SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "150",
}


def require_ray() -> None:
    """Skip the test where there is no environment with Ray."""
    if not (RAY / "ready").exists():
        pytest.skip("Ray is not installed: make .venv/ray/ready")


@contextmanager
def ray_server(folder: Path, config: str, *arguments: str) -> Iterator[LiveServer]:
    """Serve the models of the configuration file `config` until the block ends.

    `folder` takes the cache and the logs, `arguments` are those of `vecmill ray serve`. Raises `NotStarted`.
    """
    port = free_port()
    file = folder / "ray.toml"
    file.write_text(f"[server]\nport = {port}\n{config}", encoding="utf-8")
    log = folder / "ray-serve.log"
    began = time.perf_counter()
    with ray_cluster(folder) as address, log.open("wb") as output:
        process = _start(
            [f"{RAY}/bin/vecmill", "ray", "serve", "--config", f"{file}", "--address", address, *arguments],
            folder,
            output,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, process, log, deadline=began + START_S)
            yield LiveServer(url, process, log, time.perf_counter() - began)
        finally:
            stop(process)


@contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """Start a cluster of one node until the block ends, and return its address. Raises `NotStarted`."""
    port = free_port()
    # Ray's sockets are in this folder, and the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="vr", ignore_cleanup_errors=True) as sockets:
        line = [f"{RAY}/bin/ray", "start", "--head", "--block", f"--port={port}", f"--temp-dir={sockets}"]
        line += [f"--num-cpus={CLUSTER_CORES}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
        line += ["--include-dashboard=false", "--min-worker-port=0", "--max-worker-port=0"]
        # For ports of its own choice Ray waits 15 seconds, which is too short on a busy machine.
        line += [f"--{name}-port={free_port()}" for name in PORTS]
        log = folder / "ray.log"
        with log.open("wb") as output:
            process = _start(line, folder, output)
            try:
                _wait_for(process, log, "Ray runtime started")
                yield f"127.0.0.1:{port}"
            finally:
                stop(process)


def _start(line: Sequence[str], folder: Path, output: BinaryIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment(folder),
        start_new_session=True,
    )


def _wait_for(process: "subprocess.Popen[bytes]", log: Path, words: str) -> None:
    deadline = time.perf_counter() + START_S
    while words not in log.read_text("utf-8"):
        if process.poll() is not None or time.perf_counter() > deadline:
            raise NotStarted(f"the cluster did not start:\n{log.read_text('utf-8')}")
        time.sleep(0.1)


def environment(folder: Path) -> dict[str, str]:
    """The variables of this process without settings that would change what is served."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VECMILL_", "RAY_"))}
    return {**kept, "VECMILL_CACHE_DIR": str(folder / "cache"), **RAY_SETTINGS}


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a process as an operator does, and then whatever it leaves behind in its session."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=90)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
