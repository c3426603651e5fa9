"""Load from `wrk`: a native generator, since one in Python would use the cores that it measures."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.server import MODEL

SCRIPT = Path(__file__).with_name("requests.lua")


class NoGenerator(SystemExit):
    """`wrk` is missing."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run of wrk saw. `rate` is answers a second; latencies are in seconds."""

    requests: int
    rate: float
    p50_s: float
    p99_s: float


def require_wrk() -> str:
    """Where `wrk` is. Raises `NoGenerator`, which says how to get it."""
    found = shutil.which("wrk")
    if found is None:
        raise NoGenerator("The load comes from wrk, which is not installed. On Debian: apt-get install wrk")
    return found


def write_bodies(path: Path, texts: Sequence[str]) -> Path:
    """One request for each text, base64, as OpenAI's SDKs ask; one a line."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            body = {"model": MODEL, "input": text, "encoding_format": "base64"}
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
    return path


def run_load(
    url: str, bodies: Path, *, connections: int, duration_s: int, route: str = "/v1/embeddings"
) -> LoadResult:
    """Closed loop: each connection sends its next request when its last one was answered.

    Raises `AssertionError` if any answer is not a 200.
    """
    summary = bodies.with_suffix(".summary.json")
    command = [require_wrk(), "--threads", "1", "--connections", str(connections), "--timeout", "60s"]
    command += ["--duration", f"{duration_s}s", "--script", str(SCRIPT)]
    command += [f"{url}{route}", "--", str(bodies)]
    environment = {**os.environ, "WRK_SUMMARY": str(summary)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=duration_s + 120)
    told = json.loads(summary.read_text("utf-8"))
    assert told["refused"] == told["broken"] == 0, told
    return LoadResult(
        requests=told["requests"],
        rate=told["requests"] / (told["duration_us"] / 1e6),
        p50_s=told["p50_us"] / 1e6,
        p99_s=told["p99_us"] / 1e6,
    )
