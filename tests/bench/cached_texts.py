"""What a text costs the server whose embedding is in the embedding cache.

make bench-cache

Server time is processor time by the scheduler of Linux, in user and kernel mode. Of a request over HTTP it is
that of all threads of the server's process: reading the request from its socket, finding the embeddings, and
writing the response. One client sends short texts to the embedded model over one connection, in base64. In
the library, without HTTP, it is that of the event loop's thread. The requests of all kinds take turns.
"""

import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from urllib.parse import urlsplit

import uvloop

from bench.process_use import read_times
from bench.program import SERVE_WITH_ENGINES, Run, make_parser, start
from bench.report import Figure
from support.server import LiveServer
from support.texts import short_texts
from vecmill import Embed, Mill
from vecmill_server.service.embedding_cache.memory_tier import MemoryTier
from vecmill_server.service.embedding_cache.tiered_cache import TieredCache

SEED = 20_261_125
TEXTS = 100
MANY = 10
PROMISED_US = 100.0
MEMORY_BYTES = 64 * 1024 * 1024


class Sender:
    """One connection to a server, whose processor time is measured."""

    def __init__(self, server: LiveServer) -> None:
        self._pids = [server.process.pid]
        self._connection = HTTPConnection("127.0.0.1", urlsplit(server.url).port or 0, timeout=30)

    def send(self, requests: Sequence[Sequence[str]], hits: int) -> float:
        """Return the microseconds of server time for a request. Each must find so many texts."""
        before = read_times(self._pids)
        for texts in requests:
            body = json.dumps({"input": texts, "encoding_format": "base64"})
            self._connection.request("POST", "/v1/embeddings", body)
            answer = self._connection.getresponse()
            answer.read()
            found = int(answer.headers.get("x-cached-inputs", 0))
            if answer.status != 200 or found != hits:
                raise RuntimeError(f"The server answered {answer.status} with {found} cached texts.")
        spent = read_times(self._pids).since(before)
        return 1e6 * (sum(spent.loops) + sum(spent.others)) / len(requests)


def measure_library(texts: Sequence[str]) -> float:
    """Return the microseconds of the event loop's thread for a cached text, without HTTP."""

    async def run() -> float:
        mill = Mill()
        mill.embedding_cache = TieredCache(MemoryTier(MEMORY_BYTES))
        async with mill:
            for text in texts:
                await mill.run(Embed((text,)))
            began = time.thread_time()
            for text in texts:
                await mill.run(Embed((text,)))
            return (time.thread_time() - began) / len(texts) * 1e6

    found: float = uvloop.run(run())
    return found


def new_texts() -> Iterator[str]:
    """Texts that are all different."""
    numbers = itertools.count()
    for text in itertools.cycle(short_texts(SEED, TEXTS)):
        yield f"{text} {next(numbers)}"


LIBRARY = "in the library, in memory, alone"
MANY_MEMORY = f"over HTTP, in memory, one of {MANY} in a request"
MANY_DISK = f"over HTTP, on disk, one of {MANY} in a request"
ONE_MEMORY, ONE_DISK = "over HTTP, in memory, alone", "over HTTP, on disk, alone"
COMPUTED = "over HTTP, computed, alone"
PROMISED = (LIBRARY, MANY_MEMORY)


def measure(run: Run) -> dict[str, list[float]]:
    """Return the microseconds of a text in each round, by kind."""
    found: dict[str, list[float]] = defaultdict(list)
    texts, fresh = short_texts(SEED, TEXTS), new_texts()
    single = [[text] for text in texts]
    many = [texts[start : start + MANY] for start in range(0, TEXTS, MANY)]
    senders = {}
    for name, memory in (("memory", MEMORY_BYTES), ("disk", 0)):
        options = ("--no-access-log", "--result-cache-dir", run.folder / name / "results")
        limit = ("--result-cache-memory-bytes", memory)
        server = run.serve(*options, *limit, name=name, command=[str(SERVE_WITH_ENGINES)])
        senders[name] = Sender(server)
        senders[name].send(single, 0)
    time.sleep(1)  # the results of the last requests go to disk
    for _ in range(run.options.rounds):
        found[COMPUTED].append(senders["memory"].send([[next(fresh)] for _ in texts], 0))
        found[ONE_MEMORY].append(senders["memory"].send(single, 1))
        found[ONE_DISK].append(senders["disk"].send(single, 1))
        found[MANY_MEMORY].append(senders["memory"].send(many, MANY) / MANY)
        found[MANY_DISK].append(senders["disk"].send(many, MANY) / MANY)
        found[LIBRARY].append(measure_library(texts))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    with start(make_parser(__doc__, rounds=5), arguments, seed=SEED) as run:
        found = measure(run)
    figures = [
        Figure(kind, "us", tuple(values), PROMISED_US if kind in PROMISED else None)
        for kind, values in found.items()
    ]
    return run.finish("cached-texts", f"server time of a text, of {TEXTS}", figures)


if __name__ == "__main__":
    sys.exit(main())
