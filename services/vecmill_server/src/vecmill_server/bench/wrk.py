"""The closed loop of `wrk`, a native generator that leaves more of the cores to the server."""

import json
import resource
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill.values.environment import environment_variables
from vecmill_server.bench.load import BROKEN, OK, UNANSWERED, BenchLoad, LoadResult

SCRIPT = Path(__file__).with_name("requests.lua")
_END_S = 120.0


@dataclass(frozen=True, slots=True)
class WrkOrders:
    """The URL, the headers and the times of a load. wrk counts whole seconds."""

    url: str
    headers: Mapping[str, str]
    bodies_file: Path
    duration_s: int
    warm_s: int
    timeout_s: int


def find_wrk() -> str | None:
    """Return the path of `wrk`, `None` if it is not installed."""
    return shutil.which("wrk")


def run_wrk(program: str, orders: WrkOrders, load: BenchLoad) -> LoadResult | None:
    """Run a closed loop. Return `None` if a response had an error status, because wrk does not tell which.

    Raises `subprocess.CalledProcessError` if wrk fails.
    """
    assert load.clients is not None
    if orders.warm_s:
        _call(program, orders, load.clients, orders.warm_s)
    used_s = _processor_time_of_children_s()
    found = _call(program, orders, load.clients, orders.duration_s)
    used_s = _processor_time_of_children_s() - used_s
    if found["refused"]:
        return None
    elapsed_s = found["duration_us"] / 1e6
    statuses = {OK: found["requests"], BROKEN: found["broken"], UNANSWERED: found["timeout"]}
    return LoadResult(
        load=load,
        generator="wrk",
        elapsed_s=elapsed_s,
        statuses={status: count for status, count in statuses.items() if count},
        processor_share=used_s / elapsed_s,
        percentiles_s={name: value / 1e6 for name, value in found["latency_us"].items()},
    )


def _call(program: str, orders: WrkOrders, clients: int, duration_s: int) -> Any:
    summary = orders.bodies_file.with_suffix(".summary.json")
    command = [program, "--threads", "1", "--connections", str(clients), "--timeout", f"{orders.timeout_s}s"]
    command += ["--duration", f"{duration_s}s", "--script", str(SCRIPT), orders.url, "--"]
    command.append(str(orders.bodies_file))
    # Not arguments, because other users of the machine can see those.
    headers = "".join(f"{name}: {value}\n" for name, value in orders.headers.items())
    own = {"VECMILL_BENCH_SUMMARY": str(summary), "VECMILL_BENCH_HEADERS": headers}
    subprocess.run(
        command,
        env={**environment_variables(), **own},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=duration_s + orders.timeout_s + _END_S,
    )
    return json.loads(summary.read_text("utf-8"))


def _processor_time_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
