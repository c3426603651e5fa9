"""Starting and idling: seconds to ready, memory after loading, processor share at 10 requests a second.

make bench-start
"""

import sys
import time
from collections.abc import Sequence

from bench.process_use import memory_mib, processor_s
from bench.program import SERVE, Run, make_parser, start
from bench.report import Figure
from bench.rigs import load_paced_calls, paces
from support.plain_http import embed
from support.server import live_server
from support.texts import short_texts

SEED = 20_260_103
PER_SECOND = 10.0
MAX_RESIDENT_MIB = 400e6 / 2**20


KINDS = ("first start", "second start")
LAST_READY_S = {"first start": 4.0, "second start": 2.0}
LAST_ANSWER_S = {"first start": None, "second start": 1.0}


def measure_starts(run: Run) -> list[Figure]:
    """First starts with an empty cache, and second ones with a filled one."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    answers: dict[str, list[float]] = {kind: [] for kind in KINDS}
    memories: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    [text] = short_texts(SEED, 1)
    for number in range(run.options.rounds):
        place = run.folder / f"start-{number}"
        place.mkdir()
        for kind in KINDS:
            with live_server(place, command=[str(run.options.serve)]) as server:
                memories[kind].append(memory_mib(server.process.pid))
                began = time.perf_counter()
                embed(server.url, [text])
                times[kind].append(server.ready_after_s)
                answers[kind].append(server.ready_after_s + time.perf_counter() - began)
    figures = []
    for kind in KINDS:
        resident, proportional = zip(*memories[kind], strict=True)
        figures += [
            Figure(f"{kind}, until ready", "s", tuple(times[kind]), LAST_READY_S[kind]),
            Figure(f"{kind}, until the first answer", "s", tuple(answers[kind]), LAST_ANSWER_S[kind]),
            Figure(f"{kind}, resident memory", "MiB", resident, MAX_RESIDENT_MIB),
            Figure(f"{kind}, proportional memory", "MiB", proportional),
        ]
    return figures


def measure_idling(run: Run) -> list[Figure]:
    """Shares of one core: idle, at 10 requests a second, and for the bare engine calls of these."""
    seconds = run.options.seconds
    texts = short_texts(SEED, round(PER_SECOND * seconds))
    idle, busy, bare = [], [], []
    server = run.serve()
    paced_calls = run.rig(load_paced_calls)
    pid = server.process.pid
    for _ in range(run.options.rounds):
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
    parser = make_parser(__doc__, rounds=5, seconds=10, serve=SERVE)
    with start(parser, arguments, seed=SEED) as run:
        return run.finish("start", "starting and idling", [*measure_starts(run), *measure_idling(run)])


if __name__ == "__main__":
    sys.exit(main())
