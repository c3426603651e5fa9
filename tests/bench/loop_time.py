"""The processor time of the event loop's thread for a request to the library, by stage.

PYTHONPATH=tests .venv/test/bin/python -m bench.loop_time [--before CHECKOUT]

The engine is the fake one, and each request is one short text, so the time is that of admission, dispatcher,
waking of threads and event loop. A stage is the time between two seams, each a function of the library; the
rest is the loop's own: its polls, its callbacks, the tasks of the clients. The time of all stages together is
measured without any of the seams. Each figure comes from processes of its own, which take turns. `--before`
compares with another checkout.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

from bench.report import warn_if_busy
from support.source_tree import ROOT
from support.texts import short_texts

SEED = 20_261_124
TEXTS = 4_000
CLIENTS = (1, 32)
DIM = 384
STAGES = (
    "check, and prepare the texts",
    "tokenise",
    "enter the queue",
    "end",
    "leave the queue",
    "make the result",
    "event loop, and clients",
)

# The processor time in seconds of this thread within one seam, the time in others within it included.
Spent = Counter[str]


def watch_function(owner: Any, name: str, key: str, spent: Spent) -> None:
    """Count the time of calls of the method `name` of a class."""
    call = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*arguments, **named)
        finally:
            spent[key] += time.thread_time() - began  # type: ignore[assignment]

    setattr(owner, name, timed)


def watch_coroutine(owner: Any, name: str, key: str, spent: Spent) -> None:
    """Count the time of the coroutine method `name` before it first waits, and after."""
    call = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        return _step(call(*arguments, **named), key, spent)

    setattr(owner, name, timed)


@types.coroutine
def _step(coroutine: Coroutine[Any, Any, Any], key: str, spent: Spent) -> Generator[Any, Any, Any]:
    steps, part = coroutine.__await__(), f"{key} before"
    error: BaseException | None = None
    while True:
        began = time.thread_time()
        try:
            waited = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            spent[part] += time.thread_time() - began  # type: ignore[assignment]
        part, error = f"{key} after", None
        try:
            yield waited
        except BaseException as raised:
            error = raised


def split(spent: Spent, all_s: float) -> dict[str, float]:
    """Return the seconds of each stage. No stage includes another."""
    waits = ("run", "submit", "tokenise")
    before = {key: spent[f"{key} before"] for key in waits}
    after = {key: spent[f"{key} after"] for key in waits}
    tokenise_s = before["tokenise"] + after["tokenise"]
    stages = {
        "check, and prepare the texts": before["run"] - before["tokenise"] - before["submit"],
        "tokenise": tokenise_s,
        "enter the queue": before["submit"],
        "end": spent["resolve"],
        "leave the queue": after["submit"],
        "make the result": after["run"] - after["tokenise"] - after["submit"],
    }
    return stages | {"event loop, and clients": all_s - sum(stages.values())}


def watch(spent: Spent) -> None:
    """Watch the seams of the library that is imported."""
    from vecmill.batching.dispatcher import Dispatcher
    from vecmill.mill import Mill
    from vecmill.operations.tokenizing import Tokenizing

    watch_coroutine(Mill, "run", "run", spent)
    watch_coroutine(Tokenizing, "run", "tokenise", spent)
    watch_coroutine(Dispatcher, "submit", "submit", spent)
    watch_function(Dispatcher, "_resolve", "resolve", spent)


def measure(clients: int, requests: int, *, by_stage: bool) -> dict[str, float]:
    """Return the microseconds of a request in this process, of each stage, and the waits of its thread."""
    import uvloop

    from vecmill import Embed, Mill
    from vecmill.engines.fake import FakeEngine

    spent: Spent = Counter()
    if by_stage:
        watch(spent)
    texts = itertools.cycle(short_texts(SEED, TEXTS))

    async def ask(mill: Mill, count: int) -> None:
        for _ in range(count):
            await mill.run(Embed((next(texts),)))

    async def ask_all(mill: Mill, count: int) -> None:
        await asyncio.gather(*(ask(mill, count // clients) for _ in range(clients)))

    async def run() -> dict[str, float]:
        async with Mill(engine=FakeEngine(dim=DIM)) as mill:
            await ask_all(mill, requests // 5)  # warms up
            spent.clear()
            switches, began = _count_switches(), time.thread_time()
            await ask_all(mill, requests)
            took_s, waits = time.thread_time() - began, _count_switches() - switches
        found = {"all": took_s, **(split(spent, took_s) if by_stage else {})}
        count = requests // clients * clients
        return {stage: 1e6 * seconds / count for stage, seconds in found.items()} | {"waits": waits / count}

    found: dict[str, float] = uvloop.run(run())
    return found


def _count_switches() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def measure_apart(checkout: Path, clients: int, requests: int, *, by_stage: bool) -> dict[str, float]:
    """Return the figures of a checkout, measured in a process of its own."""
    sources = [checkout / "libs/vecmill/src", checkout / "services/vecmill_server/src", ROOT / "tests"]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, sources))}
    command = [sys.executable, "-m", "bench.loop_time", "--here", str(clients), "--requests", str(requests)]
    command += ["--by-stage"] * by_stage
    done = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show(title: str, unit: str, names: Sequence[str], values: Callable[[str], Sequence[float]]) -> None:
    """Print the medians of one line for each checkout, and that of the ratios of pairs."""
    cells = [f"{name} {statistics.median(values(name)):.1f} {unit}" for name in names]
    if len(names) > 1:
        ratios = [after / before for before, after in zip(*map(values, names), strict=True) if before]
        cells += [f"ratio {statistics.median(ratios):.3f}"] if ratios else []
    print(f"  {title}: {', '.join(cells)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="Another checkout.")
    parser.add_argument("--requests", type=int, default=20_000, help="How many requests a process answers.")
    parser.add_argument("--rounds", type=int, default=10, help="How many pairs of processes.")
    parser.add_argument("--here", type=int, help="Measure in this process, with so many clients.")
    parser.add_argument("--by-stage", action="store_true", help="With --here: measure the stages too.")
    options = parser.parse_args(arguments)
    if options.here is not None:
        print(json.dumps(measure(options.here, options.requests, by_stage=options.by_stage)))
        return 0
    warn_if_busy()
    checkouts = {"after": ROOT}
    if options.before is not None:
        checkouts = {"before": options.before.resolve(), "after": ROOT}
    cases = [(clients, by_stage) for clients in CLIENTS for by_stage in (False, True)]
    found: dict[tuple[int, bool, str], list[dict[str, float]]] = {
        (*case, name): [] for case in cases for name in checkouts
    }
    dice = random.Random(SEED)
    for _ in range(options.rounds):
        for clients, by_stage in cases:
            for name in dice.sample(list(checkouts), len(checkouts)):
                figures = measure_apart(checkouts[name], clients, options.requests, by_stage=by_stage)
                found[clients, by_stage, name].append(figures)
    print(f"seed {SEED}, medians of {options.rounds} processes of {options.requests} requests")
    names = list(checkouts)

    def values(clients: int, stage: str) -> Callable[[str], list[float]]:
        by_stage = stage in STAGES
        return lambda name: [figures[stage] for figures in found[clients, by_stage, name]]

    for clients in CLIENTS:
        print(f"{clients} clients, processor time of the event loop's thread for a request")
        show("in all", "µs", names, values(clients, "all"))
        for stage in STAGES:
            show(stage, "µs", names, values(clients, stage))
        show("waits of the thread", "", names, values(clients, "waits"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
