"""One server process against two on one listening socket: requests per second, and what limits them.

    make bench-processes

Both contestants have all cores: one process, or two (`--processes 2`) with half of the cores each. They take
turns in pairs, and the ratios are those of the pairs. The load comes from wrk on the same machine. The report
states the share of a core that wrk takes.

The processor times are those of the scheduler, so they depend little on what else runs. The event loop's time
for a request gives the ceiling of one process. The time of the other threads, which compute, tells how many
cores keep one event loop busy.
"""

import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.generator import require_wrk, run_load
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import shuffled
from support.server import live_server
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert

SEED = 20_261_122
TEXTS = 3_000
MANY = 64
START_S = 120.0
# The clients wait for their answers, so the queue is as long as they are many. None is refused.
PATIENT = ("--target-wait-s", "600", "--timeout-s", "600", "--max-queue-tokens", "10000000")
CONTESTANTS = {"one": 1, "two": 2}


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one kind: `texts` texts each, to `route` of the tiny or the embedded model."""

    name: str
    route: str = "/v1/embeddings"
    texts: int = 1
    is_tiny: bool = False

    def bodies(self, texts: Sequence[str]) -> Iterator[dict[str, object]]:
        """Yield the bodies of requests over `texts`."""
        for first in range(0, len(texts) - self.texts + 1, self.texts):
            inputs = list(texts[first : first + self.texts])
            if self.route == "/tokenize":
                yield {"inputs": inputs if self.texts > 1 else inputs[0]}
            else:
                yield {"input": inputs if self.texts > 1 else inputs[0], "encoding_format": "base64"}


LOADS = (
    Load("embedded model, 1 text"),
    Load(f"embedded model, {MANY} texts", texts=MANY),
    Load("tiny model, 1 text", is_tiny=True),
    Load(f"tiny model, {MANY} texts", texts=MANY, is_tiny=True),
    Load("/tokenize, 1 text", route="/tokenize"),
    Load(f"/tokenize, {MANY} texts", route="/tokenize", texts=MANY),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Processor seconds of each process of a contestant: of its event loop, and of its other threads."""

    loops: tuple[float, ...]
    others: tuple[float, ...]

    def since(self, earlier: "Times") -> "Times":
        """Return the difference."""
        return Times(
            tuple(now - then for now, then in zip(self.loops, earlier.loops, strict=True)),
            tuple(now - then for now, then in zip(self.others, earlier.others, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one contestant. `wrk_share` is the share of one core that wrk took.

    `busiest` is the share of the event loops' time that the busiest process had.
    """

    rate: float
    p99_ms: float
    loop_us: float
    others_us: float
    wrk_share: float
    busiest: float


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server: the process that was started, and the processes that serve, which may be this one."""

    url: str
    root_pid: int
    pids: Sequence[int]


def thread_s(pid: int, thread: str) -> float:
    """Return the processor seconds of a thread; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text("ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def read_times(pids: Sequence[int]) -> Times:
    """Return the processor times of the processes until now. The event loop is the main thread."""
    loops, others = [], []
    for pid in pids:
        threads = os.listdir(f"/proc/{pid}/task")
        loops.append(thread_s(pid, str(pid)))
        others.append(sum(thread_s(pid, thread) for thread in threads if thread != str(pid)))
    return Times(tuple(loops), tuple(others))


@contextmanager
def contestant(
    serve: Path, processes: int, model: Sequence[str], folder: Path, *, start_s: float = START_S
) -> Iterator[Contestant]:
    """Start a server with this number of processes, and wait until all of them serve."""
    folder.mkdir(parents=True)
    arguments = [*model, "--processes", str(processes), "--no-access-log", *PATIENT]
    with live_server(folder, arguments=arguments, command=[str(serve)], timeout_s=start_s) as server:
        pids = [server.process.pid]
        deadline = time.perf_counter() + start_s
        while processes > 1 and count_ready(server.url) < processes:
            assert time.perf_counter() < deadline, server.log.read_text()
            time.sleep(0.1)
        if processes > 1:
            told = Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text("ascii")
            pids = [int(pid) for pid in told.split()]
        yield Contestant(server.url, server.process.pid, pids)


def count_ready(url: str) -> int:
    """Return the number of processes that have loaded the model, from the page of metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return len(re.findall(rb"^vecmill_model_ready{process=.* 1\.0$", answer.read(), flags=re.MULTILINE))


def measure(server: Contestant, load: Load, bodies: Path, options: argparse.Namespace) -> Run:
    """Run one load."""
    url, pids = server.url, server.pids
    before, wrk_before = read_times(pids), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    found = run_load(
        url, bodies, connections=options.connections, duration_s=options.seconds, route=load.route
    )
    took_s = time.perf_counter() - began
    spent, wrk = read_times(pids).since(before), resource.getrusage(resource.RUSAGE_CHILDREN)
    wrk_s = wrk.ru_utime + wrk.ru_stime - wrk_before.ru_utime - wrk_before.ru_stime
    return Run(
        rate=found.rate,
        p99_ms=found.p99_s * 1e3,
        loop_us=1e6 * sum(spent.loops) / found.requests,
        others_us=1e6 * sum(spent.others) / found.requests,
        wrk_share=wrk_s / took_s,
        busiest=max(spent.loops) / sum(spent.loops),
    )


def figures_of(load: Load, runs: Mapping[str, Sequence[Run]]) -> list[Figure]:
    """Return the rates, the ratio of two processes to one, and the limits of one process."""
    one, two = runs["one"], runs["two"]
    figures = [
        Figure(
            f"{load.name}: {name} process{'es' * (name == 'two')}", "requests/s", tuple(r.rate for r in found)
        )
        for name, found in runs.items()
    ]
    return [
        *figures,
        Figure(
            f"{load.name}: two / one", "ratio", tuple(b.rate / a.rate for a, b in zip(one, two, strict=True))
        ),
        Figure(f"{load.name}: p99, one", "ms", tuple(r.p99_ms for r in one)),
        Figure(f"{load.name}: p99, two", "ms", tuple(r.p99_ms for r in two)),
        Figure(f"{load.name}: wrk beside one", "cores", tuple(r.wrk_share for r in one)),
        Figure(f"{load.name}: busier process of two", "share", tuple(r.busiest for r in two)),
        Figure(f"{load.name}: event loop", "us/request", tuple(r.loop_us for r in one)),
        Figure(f"{load.name}: other threads", "us/request", tuple(r.others_us for r in one)),
        Figure(f"{load.name}: ceiling of one event loop", "requests/s", tuple(1e6 / r.loop_us for r in one)),
        Figure(
            f"{load.name}: cores that one event loop feeds",
            "cores",
            tuple(1 + r.others_us / r.loop_us for r in one),
        ),
    ]


def run_load_kind(
    load: Load, models: Mapping[bool, Sequence[str]], folder: Path, options: argparse.Namespace
) -> list[Figure]:
    """Measure both contestants under one load, in pairs."""
    texts = shuffled(short_texts(SEED, TEXTS), SEED)
    bodies = folder / "bodies"
    folder.mkdir()
    with bodies.open("w", encoding="utf-8") as file:
        for body in load.bodies(texts):
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
    runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(contestant(options.serve, count, models[load.is_tiny], folder / name))
            for name, count in CONTESTANTS.items()
        }
        for number in range(options.rounds + 1):
            for name in list(CONTESTANTS)[:: 1 if number % 2 else -1]:
                found = measure(started[name], load, bodies, options)
                if number:  # the first pair warms up
                    runs[name].append(found)
                    print(f"{load.name}, {name}: {found}", flush=True)
    return figures_of(load, runs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="How many pairs.")
    parser.add_argument("--seconds", type=int, default=5, help="How long each load lasts.")
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument(
        "--serve", type=Path, default=Path(".venv/serve/bin/vecmill"), help="The vecmill that serves."
    )
    parser.add_argument("--load", action="append", help="A part of the names of the loads; all by default.")
    options = parser.parse_args(arguments)
    require_wrk()
    warn_if_busy()
    print(f"seed {SEED}, {options.connections} connections, {options.rounds} pairs of {options.seconds} s")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as scratch:
        folder = Path(scratch)
        tiny = save_tiny_bert(folder / "tiny", TinyBert(config={"num_hidden_layers": 1}))
        models = {True: [str(tiny)], False: []}
        for number, load in enumerate(LOADS):
            if options.load is None or any(part in load.name for part in options.load):
                figures += run_load_kind(load, models, folder / str(number), options)
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "connections")}
    return finish("processes", "one process and two, wrk, base64", figures, {**settings, "seed": SEED})


if __name__ == "__main__":
    sys.exit(main())
