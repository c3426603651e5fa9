"""Measures the cost of the view "Watch": processor seconds of a server whose metrics a browser reads.

    make bench-watch

Windows with the requests of an open view, and windows without, take turns under the same load. The difference
is the cost. The requests are those of `views/watch.js` and `main.js` of the console.
"""

import argparse
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench.report import Figure, finish, warn_if_busy
from bench.rigs import paces
from bench.start import SERVE, processor_s
from support.plain_http import embed
from support.server import live_server
from support.texts import short_texts

SEED = 20_261_123
PER_SECOND = 10.0
# What an open view requests, and how often.
POLLS = {"/metrics": 2.0, "/console/state.json": 5.0}
MOST_PERCENT = 1.0


def poll(url: str, path: str, every_s: float, stop: threading.Event, read: list[str]) -> None:
    """Read `path` every so often until `stop` is set, and note it in `read`."""
    while not stop.wait(every_s):
        urllib.request.urlopen(url + path, timeout=10).read()
        read.append(path)


def measure_window(url: str, pid: int, texts: Sequence[str], *, watched: bool) -> float:
    """The share of one core, in per cent, that the server takes for `texts`."""
    stop, read = threading.Event(), list[str]()
    polled = POLLS if watched else {}
    polls = [threading.Thread(target=poll, args=(url, *each, stop, read)) for each in polled.items()]
    for each in polls:
        each.start()
    before, began = processor_s(pid), time.perf_counter()
    for number in paces(len(texts), PER_SECOND):
        embed(url, [texts[number]])
    share = (processor_s(pid) - before) / (time.perf_counter() - began) * 100
    stop.set()
    for each in polls:
        each.join()
    if set(read) != polled.keys():
        raise RuntimeError(f"the server answered {sorted(set(read))} only, of {sorted(polled)}")
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=10, help="How long the view is open in all.")
    parser.add_argument("--seconds", type=int, default=30, help="How long a window is.")
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    texts = short_texts(SEED, round(PER_SECOND * options.seconds))
    shares: dict[bool, list[float]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory(prefix="vecmill-bench-") as name,
        live_server(Path(name), command=[str(options.serve)]) as server,
    ):
        for turn in range(max(1, options.minutes * 60 // options.seconds)):
            # Each order as often as the other.
            for watched in (False, True) if turn % 2 else (True, False):
                shares[watched].append(measure_window(server.url, server.process.pid, texts, watched=watched))
    cost = [one - other for one, other in zip(shares[True], shares[False], strict=True)]
    figures = [
        Figure("10 requests a second, share of one core", "%", tuple(shares[False])),
        Figure("the same with an open view", "%", tuple(shares[True])),
        Figure("cost of the view", "%", tuple(cost), MOST_PERCENT),
    ]
    settings = {"minutes": options.minutes, "seconds": options.seconds, "seed": SEED}
    return finish("watch", "the console's view of the load", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
