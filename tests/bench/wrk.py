"""The closed loop of `wrk`, a native generator that leaves more of the cores to the server."""

import json
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vecmill.values.environment import environment_variables
from vecmill_server.bench.generator import Orders, raise_file_limit
from vecmill_server.bench.load_results import (
    BROKEN,
    OK,
    UNANSWERED,
    BenchLoad,
    LoadResult,
    summarise_latencies,
)

SCRIPT = Path(__file__).with_name("requests.lua")
_END_S = 120.0


def _children_time_s() -> float:
    """Return the processor time of the programs that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def find_wrk() -> str | None:
    """Return the path of `wrk`, `None` if it is not installed."""
    return shutil.which("wrk")


def run_wrk(program: str, orders: Orders, load: BenchLoad) -> LoadResult | None:
    """Run a closed loop. Return `None` if a response had an error status, because wrk does not tell which.

    wrk takes whole seconds. Raises `subprocess.SubprocessError`, `OSError`, `ValueError` or `LookupError` if
    wrk fails, or if the program is another one.
    """
    assert load.clients is not None
    raise_file_limit()
    used_s = _children_time_s()
    found = _call(program, orders, load.clients)
    used_s = _children_time_s() - used_s
    if found["refused"]:
        return None
    elapsed_s = found["duration_us"] / 1e6
    # wrk counts a late response as a request and as a timeout.
    answered = found["requests"] - found["timeout"]
    statuses = {OK: answered, BROKEN: found["broken"], UNANSWERED: found["timeout"]}
    clients_requests = found["requests"] // load.clients
    interval_us = found["duration_us"] // clients_requests if clients_requests else None
    latencies_s = undo_correction(found["latencies_us"], interval_us)
    return LoadResult(
        load=load,
        elapsed_s=elapsed_s,
        statuses={status: count for status, count in statuses.items() if count},
        processor_share=used_s / elapsed_s,
        percentiles_s=summarise_latencies(latencies_s),
        latencies_s=latencies_s,
    )


def undo_correction(counts: Sequence[tuple[int, int]], interval_us: int | None) -> Sequence[float]:
    """Return the latencies that wrk measured, in seconds and ascending.

    `counts` has the latencies of wrk in microseconds, ascending, each with its number. wrk adds to each
    latency of more than two intervals the shorter ones that requests sent at fixed times would have had: the
    latency less one interval, less two, and so on, down to one interval. So the number at `n` less the number
    at `n + interval_us` is the measured one. `None` stands for a run without this correction.
    """
    corrected = dict(counts)
    values, numbers = list(corrected), list(corrected.values())
    if interval_us is not None:
        for place, value in enumerate(values):
            if value > interval_us:
                numbers[place] -= corrected.get(value + interval_us, 0)
    return [value / 1e6 for value, number in zip(values, numbers, strict=True) for _ in range(number)]


def _call(program: str, orders: Orders, clients: int) -> Any:
    summary = Path(orders.bodies_file).with_suffix(".summary.json")
    command = [program, "--threads", "1", "--connections", str(clients), "--script", str(SCRIPT)]
    command += ["--duration", f"{orders.duration_s:g}s", "--timeout", f"{orders.timeout_s:g}s"]
    command += [orders.target.url, "--", orders.bodies_file]
    summary.unlink(missing_ok=True)
    # Not arguments, because other users of the machine can see those.
    headers = "".join(f"{name}: {value}\n" for name, value in orders.target.headers.items())
    own = {"VECMILL_BENCH_SUMMARY": str(summary), "VECMILL_BENCH_HEADERS": headers}
    subprocess.run(
        command,
        env={**environment_variables(), **own},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=orders.duration_s + orders.timeout_s + _END_S,
    )
    return json.loads(summary.read_text("utf-8"))
