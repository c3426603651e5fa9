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
import re
import resource
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.generator import LoadResult, run_load
from bench.process_use import read_times
from bench.program import SERVE, Run, make_parser, start, take_turns
from bench.report import Figure, ratios_of
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
class LoadRun:
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


def measure(server: Contestant, load: Load, bodies: Path, options: argparse.Namespace) -> LoadRun:
    """Run one load."""
    before = read_times(server.pids)
    found, wrk_share = run_watched_load(server.url, bodies, options, route=load.route)
    spent = read_times(server.pids).since(before)
    return LoadRun(
        rate=found.rate,
        p99_ms=found.p99_s * 1e3,
        loop_us=1e6 * sum(spent.loops) / found.requests,
        others_us=1e6 * sum(spent.others) / found.requests,
        wrk_share=wrk_share,
        busiest=max(spent.loops) / sum(spent.loops),
    )


def run_watched_load(
    url: str, bodies: Path, options: argparse.Namespace, *, route: str
) -> tuple[LoadResult, float]:
    """Run a load; return its figures, and the share of a core that wrk took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    found = run_load(url, bodies, connections=options.connections, duration_s=options.seconds, route=route)
    took_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found, spent_s / took_s


def figures_of(load: Load, runs: Mapping[str, Sequence[LoadRun]]) -> list[Figure]:
    """Return the rates, the ratio of two processes to one, and the limits of one process."""
    one, two = runs["one"], runs["two"]

    def figure(name: str, unit: str, found: Sequence[LoadRun], value: Callable[[LoadRun], float]) -> Figure:
        return Figure(f"{load.name}: {name}", unit, tuple(map(value, found)))

    ratios = ratios_of((run.rate for run in two), (run.rate for run in one))
    return [
        figure("one process", "requests/s", one, lambda run: run.rate),
        figure("two processes", "requests/s", two, lambda run: run.rate),
        Figure(f"{load.name}: two / one", "ratio", ratios),
        figure("p99, one", "ms", one, lambda run: run.p99_ms),
        figure("p99, two", "ms", two, lambda run: run.p99_ms),
        figure("wrk beside one", "cores", one, lambda run: run.wrk_share),
        figure("busier process of two", "share", two, lambda run: run.busiest),
        figure("event loop", "us/request", one, lambda run: run.loop_us),
        figure("other threads", "us/request", one, lambda run: run.others_us),
        figure("ceiling of one event loop", "requests/s", one, lambda run: 1e6 / run.loop_us),
        figure("cores that one event loop feeds", "cores", one, lambda run: 1 + run.others_us / run.loop_us),
    ]


def run_load_kind(load: Load, models: Mapping[bool, Sequence[str]], folder: Path, run: Run) -> list[Figure]:
    """Measure both contestants under one load, in pairs."""
    folder.mkdir()
    bodies = folder / "bodies"
    lines = map(json.dumps, load.bodies(shuffled(short_texts(SEED, TEXTS), SEED)))
    bodies.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    runs: dict[str, list[LoadRun]] = {name: [] for name in CONTESTANTS}
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(
                contestant(run.options.serve, count, models[load.is_tiny], folder / name)
            )
            for name, count in CONTESTANTS.items()
        }
        for counts, name in take_turns(CONTESTANTS, run.options.rounds):
            found = measure(started[name], load, bodies, run.options)
            if counts:
                runs[name].append(found)
                print(f"{load.name}, {name}: {found}", flush=True)
    return figures_of(load, runs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=5, serve=SERVE)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--load", action="append", help="A part of the names of the loads; all by default.")
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        tiny = save_tiny_bert(run.folder / "tiny", TinyBert(config={"num_hidden_layers": 1}))
        models = {True: [str(tiny)], False: []}
        for number, load in enumerate(LOADS):
            if run.options.load is None or any(part in load.name for part in run.options.load):
                figures += run_load_kind(load, models, run.folder / str(number), run)
    return run.finish("processes", "one process and two, wrk, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
