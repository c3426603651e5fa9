"""More models than memory: every request answered or refused, memory, idle models, and loads beside others.

PYTHONPATH=tests .venv/test/bin/python -m bench.catalog [--minutes M] [--models N] [--seed S]

Three servers, with models of random weights, 10 million parameters each:

uniform  32 clients ask for 20 models, of which 4 fit, each equally often.
zipf     the same, but the model of rank r is asked for in proportion to 1/r.
beside   4 clients ask for 2 loaded models, alone, and while a third one is loaded every few seconds.

A client waits as long as `retry-after-ms` says before it goes on. In the end nobody asks, and the last model
has to be gone in time.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from bench.process_use import MemoryPeak, status_mb
from bench.program import make_parser, start
from support.server import LiveServer, live_server
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill_server.catalog.memory_budget import MODELS_SHARE

CLIENTS, BESIDE_CLIENTS = 32, 4
KEEP_ALIVE_S = 5.0
# What a server counts without models, for a loaded model of this size, and at the peak of its first load.
SERVER_MB, MODEL_MB, PEAK_MB = 200, 69, 148
FIT = 4
BUDGET_MIB = round((SERVER_MB + (FIT - 1) * MODEL_MB + PEAK_MB) / MODELS_SHARE * 1e6 / 2**20)
SAMPLE_S = 0.05
LOAD_EVERY_S = 3.0
SHAPE = {
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "initializer_range": 0.02,
}
# What is asked for: no other answers, memory over the budget, seconds beyond the time of an idle model, and
# the growth of the p99 of loaded models.
MOST_OVER, MOST_LATE_S, MOST_GROWTH = 0.10, 1.0, 0.20


@dataclass
class Answers:
    """The answers to the requests of one load, and the largest memory of the server meanwhile."""

    statuses: Counter[int] = field(default_factory=Counter)
    without_retry: int = 0
    latencies_s: list[float] = field(default_factory=list)
    largest_mb: float = 0.0

    @property
    def p99_s(self) -> float:
        return float(np.quantile(self.latencies_s, 0.99)) if self.latencies_s else 0.0


@contextmanager
def serve(folder: Path, models: Sequence[Path], *options: str) -> Iterator[LiveServer]:
    budget = ("--memory-budget-mib", str(BUDGET_MIB), "--no-access-log", *options)
    with live_server(folder, arguments=(*map(str, models), *budget)) as server:
        yield server


def embed_body(model: str, number: int, **more: object) -> dict[str, object]:
    return {"model": model, "input": f"a text that nobody has sent before, {number}", **more}


async def ask(
    client: httpx.AsyncClient,
    choose: random.Random,
    models: Sequence[str],
    weights: Sequence[float],
    until: float,
    answers: Answers,
) -> None:
    """Send one request after the other, and note the answers."""
    while time.monotonic() < until:
        (model,) = choose.choices(models, weights)
        began = time.monotonic()
        answer = await client.post("/api/embed", json=embed_body(model, choose.getrandbits(60)))
        answers.statuses[answer.status_code] += 1
        answers.latencies_s.append(time.monotonic() - began)
        if answer.status_code != 200:
            wait_ms = answer.headers.get("retry-after-ms")
            answers.without_retry += wait_ms is None
            await asyncio.sleep(min(float(wait_ms or 1000) / 1000, 2.0))


async def run_clients(
    server: LiveServer,
    models: Sequence[str],
    weights: Sequence[float],
    seconds: float,
    clients: int,
    seed: int,
) -> Answers:
    """Return the answers to so many clients, each of which sends one request after the other."""
    answers = Answers()
    limits = httpx.Limits(max_connections=clients)
    with MemoryPeak(server.process.pid) as memory:
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
            until = time.monotonic() + seconds
            each = (random.Random(seed * 1000 + number) for number in range(clients))
            await asyncio.gather(*(ask(client, one, models, weights, until, answers) for one in each))
    answers.largest_mb = memory.peak_mb
    return answers


def wait_until_idle(server: LiveServer) -> float:
    """Return the seconds until no model is loaded, from now."""
    began = time.monotonic()
    with httpx.Client(base_url=server.url) as client:
        while client.get("/api/ps").json()["models"]:
            time.sleep(SAMPLE_S)
    return time.monotonic() - began


def load_many(
    folder: Path, models: Sequence[Path], weights: Sequence[float], seconds: float, seed: int
) -> bool:
    """Send requests for more models than fit, print what came of it, and return whether it is as asked."""
    folder.mkdir()
    names = [model.name for model in models]
    with serve(folder, models, "--model-keep-alive-s", str(KEEP_ALIVE_S)) as server:
        found = asyncio.run(run_clients(server, names, weights, seconds, CLIENTS, seed))
        idle_s = wait_until_idle(server)
        time.sleep(1.0)  # it is being closed
        left_mb = status_mb(server.process.pid, "VmRSS")
        page = httpx.get(f"{server.url}/metrics").text
    loads = sum(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith("vecmill_model_loads_total")
    )
    budget_mb = BUDGET_MIB * 2**20 / 1e6
    over = found.largest_mb / budget_mb - 1
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(found.statuses.items()))
    print(f"  answers by status: {statuses}; refused without a time to retry: {found.without_retry}")
    print(f"  loads: {loads:.0f}; p50 {np.quantile(found.latencies_s, 0.5):.2f} s, p99 {found.p99_s:.2f} s")
    print(
        f"  memory at most {found.largest_mb:.0f} MB of {budget_mb:.0f} MB ({over:+.1%}), idle {left_mb:.0f}"
    )
    print(f"  the last idle model was gone after {idle_s:.1f} s of {KEEP_ALIVE_S:g} s")
    is_answered = set(found.statuses) <= {200, 429, 503} and not found.without_retry
    return is_answered and over <= MOST_OVER and idle_s <= KEEP_ALIVE_S + MOST_LATE_S


async def load_again_and_again(server: LiveServer, model: str, seconds: float) -> int:
    """Load a model every few seconds, which is dropped at once, and return how often."""
    loads, until = 0, time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        while not loads or time.monotonic() < until:
            (await client.post("/api/embed", json=embed_body(model, loads, keep_alive=0))).raise_for_status()
            loads += 1
            await asyncio.sleep(LOAD_EVERY_S)
    return loads


async def measure_beside(
    server: LiveServer, models: Sequence[str], seconds: float, seed: int
) -> tuple[Answers, Answers, int]:
    """Return the answers of two loaded models, alone and beside loads of a third, and the number of loads."""
    loaded, weights = models[:2], (1.0, 1.0)
    await load_again_and_again(server, models[2], 0.1)  # its first load prepares its files
    await run_clients(server, loaded, weights, min(5.0, seconds), BESIDE_CLIENTS, seed)
    alone = await run_clients(server, loaded, weights, seconds, BESIDE_CLIENTS, seed + 1)
    loading = asyncio.create_task(load_again_and_again(server, models[2], seconds))
    beside = await run_clients(server, loaded, weights, seconds, BESIDE_CLIENTS, seed + 2)
    return alone, beside, await loading


def load_beside(folder: Path, models: Sequence[Path], seconds: float, seed: int) -> bool:
    """Measure loaded models while another is loaded, print it, and return whether it is as asked."""
    folder.mkdir()
    with serve(folder, models[:3]) as server:
        names = [model.name for model in models]
        alone, beside, loads = asyncio.run(measure_beside(server, names, seconds, seed))
    growth = beside.p99_s / alone.p99_s - 1
    print(f"  p99 alone {1000 * alone.p99_s:.1f} ms of {alone.statuses.total()} requests")
    print(
        f"  p99 beside {loads} later loads {1000 * beside.p99_s:.1f} ms of {beside.statuses.total()}"
        f" ({growth:+.0%})"
    )
    return set(alone.statuses | beside.statuses) == {200} and growth <= MOST_GROWTH


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="How long each load lasts.")
    parser.add_argument("--models", type=int, default=20, help="How many models there are, at least 3.")
    parser.add_argument("--seed", type=int, default=1, help="What the clients choose depends on it.")
    with start(parser, arguments) as run:
        options, folder = run.options, run.folder
        models = [
            save_tiny_bert(folder / f"model-{number}", TinyBert(config=SHAPE, seed=number))
            for number in range(options.models)
        ]
        seconds = 60 * options.minutes
        zipf = [1 / rank for rank in range(1, options.models + 1)]
        results = {}
        for name, weights in (("uniform", [1.0] * options.models), ("zipf", zipf)):
            print(f"{name}: {CLIENTS} clients, of the models {FIT} fit")
            results[name] = load_many(folder / name, models, weights, seconds, options.seed)
        print("beside")
        results["beside"] = load_beside(folder / "beside", models, seconds, options.seed)
    for name, is_as_asked in results.items():
        print(f"{name}: {'as asked' if is_as_asked else 'NOT as asked'}")
    return int(not all(results.values()))


if __name__ == "__main__":
    sys.exit(main())
