"""Short texts of one client beside one long text of another, through a server with a lane for each.

Part of `make bench-long`.
"""

import json
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from perf.overload import MemoryPeak, quantile
from perf.report import Figure
from support.server import LiveServer, live_server

SEED = 20_261_124
SHORT_TOKENS = 16
SHORT_CALLS = 200
# Of a client that sends short texts one after the other, such as a search box.
PAUSE_S = 0.05
SHORT_P99_MS = 200.0
PEAK_MB = 2000.0
PATIENCE_S = 600.0
LOAD_S = 300.0


@dataclass
class LongText:
    """A request with one long text, sent from a thread."""

    url: str
    tokens: int
    seconds: float = 0.0
    _thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """True until the request is answered."""
        assert self._thread is not None
        return self._thread.is_alive()

    def send(self) -> None:
        """Send the request, and return at once."""
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        self.seconds = ask(self.url, draw_tokens(random.Random(SEED), self.tokens))


def draw_tokens(draw: random.Random, length: int) -> list[int]:
    """Token ids of a text that no other draw repeats."""
    return [draw.randrange(5, 1000) for _ in range(length)]


def ask(url: str, ids: Sequence[int]) -> float:
    """Return the seconds that one text takes. Raises `HTTPError` unless the answer is 200."""
    body = json.dumps({"input": [list(ids)], "encoding_format": "base64"}).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"content-type": "application/json"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer.read()
    return time.perf_counter() - began


def time_short(url: str, draws: Iterator[int], goes_on: Callable[[int], bool]) -> list[float]:
    """The milliseconds of short texts, one after the other, as long as `goes_on(number of texts)`."""
    found: list[float] = []
    while goes_on(len(found)):
        found.append(1e3 * ask(url, draw_tokens(random.Random(next(draws)), SHORT_TOKENS)))
        time.sleep(PAUSE_S)
    return found


def bench_beside(model: Path, tokens: int) -> list[Figure]:
    """The latencies of short texts before, beside and after a text of `tokens`, and its memory."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        arguments = [str(model), "--token-ids", "native", "--no-access-log"]
        server = stack.enter_context(live_server(folder, arguments=arguments, timeout_s=LOAD_S))
        return _measure(server, tokens)


def _measure(server: LiveServer, tokens: int) -> list[Figure]:
    draws = count(SEED)
    before = time_short(server.url, draws, lambda number: number < SHORT_CALLS)
    long_text = LongText(server.url, tokens)
    with MemoryPeak(server.process.pid) as memory:
        long_text.send()
        beside = time_short(server.url, draws, lambda _: long_text.is_open)
    after = time_short(server.url, draws, lambda number: number < SHORT_CALLS)
    figures = [
        Figure(f"served, {tokens} tokens beside short texts", "s", (long_text.seconds,)),
        Figure("served, memory beyond the loaded model", "MB", (memory.peak_mb - memory.before_mb,), PEAK_MB),
    ]
    for name, found, bound in (
        ("before", before, None),
        ("beside", beside, SHORT_P99_MS),
        ("after", after, SHORT_P99_MS),
    ):
        print(f"{len(found)} short texts {name} the long one", flush=True)
        figures.append(Figure(f"served, short texts {name}, p50", "ms", (quantile(found, 0.5),)))
        figures.append(Figure(f"served, short texts {name}, p99", "ms", (quantile(found, 0.99),), bound))
    return figures
