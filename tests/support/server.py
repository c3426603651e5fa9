"""A real `vecmill serve` in a process of its own, for tests and measurements."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.forked_process import ForkedProcess

MODEL = "all-MiniLM-L6-v2"
POLL_S = 0.005
# Tests that run beside these take any port of 32768 and above, as clients do.
PORTS = range(10_000, 32_768)


class NotStarted(Exception):
    """The server ended, or was not ready in time. Says what it had printed."""


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server that answered `/readyz` with 200, `ready_after_s` after it was started."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_after_s: float


@contextmanager
def live_server(
    folder: Path,
    *,
    arguments: Sequence[str] = (),
    command: Sequence[str] = (sys.executable, "-m", "vecmill"),
    timeout_s: float = 60.0,
    cache: Path | None = None,
) -> Iterator[LiveServer]:
    """Serve on a free loopback port until the block ends; `folder` takes the log, and the cache.

    `command` is how `vecmill` is called, `cache` another cache, of prepared models. Raises `NotStarted`.
    """
    port = free_port()
    log = folder / "server.log"
    line = [*command, "serve", "--port", str(port), "--lame-duck-s", "0", *arguments]
    began = time.perf_counter()
    with log.open("wb") as output:
        process = ForkedProcess[bytes](
            line,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(cache or folder / "cache"),
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, process, log, deadline=began + timeout_s)
        yield LiveServer(url, process, log, time.perf_counter() - began)
    finally:
        stop_server(process)


def free_port() -> int:
    """A loopback port that was free a moment ago, of those that no system hands out to who asks for any."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = PORTS.start + secrets.randbelow(len(PORTS))
            probe.bind(("127.0.0.1", port))
            return port


def wait_until_alive(port: int, *, timeout_s: float = 60.0) -> None:
    """Return when a server on this loopback port answers `/livez`. Raises `NotStarted`."""
    deadline = time.perf_counter() + timeout_s
    while True:
        if _is_ready(f"http://127.0.0.1:{port}/livez"):
            return
        if time.perf_counter() > deadline:
            raise NotStarted(f"no server answers on port {port}")
        time.sleep(POLL_S)


def _environment(cache: Path) -> dict[str, str]:
    """Ours, without settings that would change what is served."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
    return {**kept, "VECMILL_CACHE_DIR": str(cache)}


def wait_until_ready(
    url: str, process: subprocess.Popen[bytes], log: Path, *, deadline: float, path: str = "/readyz"
) -> None:
    """Return when the server answers `path` with 200. Raises `NotStarted`."""
    while not _is_ready(url + path):
        if process.poll() is not None:
            raise NotStarted(f"the server ended with status {process.returncode}:\n{log.read_text()}")
        if time.perf_counter() > deadline:
            raise NotStarted(f"the server was not ready in time:\n{log.read_text()}")
        time.sleep(POLL_S)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError:  # refused
        pass
    return False


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """Stop a server by SIGTERM, or by SIGKILL after 30 seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
