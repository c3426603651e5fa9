"""Starting and idling: seconds to ready, memory after loading, processor share at 10 requests a second.

make bench-start
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.report import Figure, finish, warn_if_busy
from bench.rigs import load_paced_calls, paces, rig_process
from support.plain_http import embed
from support.server import live_server
from support.texts import short_texts

SEED = 20_260_103
PER_SECOND = 10.0
MAX_RESIDENT_MIB = 400e6 / 2**20
SERVE = Path(".venv/serve/bin/vecmill")


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident and proportional memory of a process, in MiB. RSS counts pages mapped twice twice."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    sizes = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", text, flags=re.MULTILINE))
    return int(sizes["Rss"]) / 1024, int(sizes["Pss"]) / 1024


def processor_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_starts(folder: Path, serve: Path, rounds: int) -> list[Figure]:
    """First starts with an empty cache, and second ones with a filled one."""
    times: dict[str, list[float]] = {"first start": [], "second start": []}
    answers: dict[str, list[float]] = {"first start": [], "second start": []}
    memories: dict[str, list[tuple[float, float]]] = {"first start": [], "second start": []}
    [text] = short_texts(SEED, 1)
    for number in range(rounds):
        place = folder / f"start-{number}"
        place.mkdir()
        for kind in times:
            with live_server(place, command=[str(serve)]) as server:
                memories[kind].append(memory_mib(server.process.pid))
                began = time.perf_counter()
                embed(server.url, [text])
                times[kind].append(server.ready_after_s)
                answers[kind].append(server.ready_after_s + time.perf_counter() - began)
    return [
        Figure("first start, until ready", "s", tuple(times["first start"]), 4.0),
        Figure("second start, until ready", "s", tuple(times["second start"]), 2.0),
        Figure("first start, until the first answer", "s", tuple(answers["first start"])),
        Figure("second start, until the first answer", "s", tuple(answers["second start"]), 1.0),
        *(
            figure
            for kind, sizes in memories.items()
            for figure in (
                Figure(f"{kind}, resident memory", "MiB", tuple(rss for rss, _ in sizes), MAX_RESIDENT_MIB),
                Figure(f"{kind}, proportional memory", "MiB", tuple(pss for _, pss in sizes)),
            )
        ),
    ]


def measure_idling(folder: Path, serve: Path, rounds: int, seconds: int) -> list[Figure]:
    """Shares of one core: idle, at 10 requests a second, and for the bare engine calls of these."""
    texts = short_texts(SEED, round(PER_SECOND * seconds))
    idle, busy, bare = [], [], []
    with ExitStack() as stack:
        server = stack.enter_context(live_server(folder, command=[str(serve)]))
        paced_calls = stack.enter_context(rig_process(load_paced_calls, folder / "cache"))
        pid = server.process.pid
        for _ in range(rounds):
            before = processor_s(pid)
            time.sleep(seconds)
            idle.append((processor_s(pid) - before) / seconds * 100)
            before = processor_s(pid)
            for number in paces(len(texts), PER_SECOND):
                embed(server.url, [texts[number]])
            busy.append((processor_s(pid) - before) / seconds * 100)
            bare.append(paced_calls(texts) / seconds * 100)
    beyond = tuple(all_of_it - calls for all_of_it, calls in zip(busy, bare, strict=True))
    return [
        Figure("idle, share of one core", "%", tuple(idle)),
        Figure("10 requests a second, share of one core", "%", tuple(busy)),
        Figure("the bare engine calls alone", "%", tuple(bare)),
        Figure("beyond the bare engine calls", "%", beyond, 8.0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10, help="How long each share of a core is measured.")
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as name:
        folder = Path(name)
        figures = measure_starts(folder, options.serve, options.rounds)
        figures += measure_idling(folder, options.serve, options.rounds, options.seconds)
    settings = {"rounds": options.rounds, "seconds": options.seconds, "seed": SEED}
    return finish("start", "starting and idling", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
