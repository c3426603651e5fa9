"""The memory of a server under mixed loads, minute by minute.

make bench-memory ARGS="--minutes 20 -- --engine openvino --precision bf16"

One, 8 and 32 clients take turns. Each sends single texts of all lengths, and now and then requests of 4 and
16 texts, none of them twice. The memory is the proportional set size (PSS), which includes the files that
are mapped.
"""

import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError

from tqdm import tqdm

from bench.process_use import proportional_mb
from bench.program import SERVE_WITH_ENGINES, make_parser, start
from bench.report import Figure, markdown_table, save_page
from support.plain_http import post
from support.server import LiveServer
from support.texts import long_texts, medium_texts, mixed_texts, short_texts

SEED = 20_261_127
TEXTS = 500
CLIENTS = (1, 8, 32)
PHASE_S = 20.0
SINGLE_SHARE = 0.8
MANY = (4, 16)
TOO_MANY, RETRY_S = 429, 0.5


def send_until(stop: threading.Event, url: str, seed: int) -> int:
    """Send requests until `stop` is set. Return the number of texts that were embedded."""
    dice, sent = random.Random(seed), 0
    kinds = [make(SEED, TEXTS) for make in (short_texts, mixed_texts, medium_texts, long_texts)]
    while not stop.is_set():
        count = 1 if dice.random() < SINGLE_SHARE else dice.choice(MANY)
        kind = dice.choice(kinds)
        texts = [f"{dice.choice(kind)} {dice.random()}" for _ in range(count)]
        try:
            post(f"{url}/v1/embeddings", {"input": texts, "encoding_format": "base64"})
            sent += count
        except HTTPError as error:
            error.close()
            if error.code != TOO_MANY:
                raise
            stop.wait(RETRY_S)
    return sent


def run_phase(server: LiveServer, clients: int, seed: int, seconds: float) -> float:
    """Send the load of so many clients. Return their texts a second. Raises the error of any client."""
    stop, began = threading.Event(), time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(send_until, stop, server.url, seed + number) for number in range(clients)]
        time.sleep(seconds)
        stop.set()
        sent = sum(client.result() for client in running)
    return sent / (time.perf_counter() - began)


def measure(server: LiveServer, minutes: float, phase_s: float) -> list[tuple[int, float, float, float]]:
    """Return, after each phase: its clients, the minutes since the start, PSS in MB, and texts a second."""
    found = [(0, 0.0, proportional_mb(server.process.pid), 0.0)]
    began = time.perf_counter()
    with tqdm(total=round(minutes * 60), unit="s") as bar:
        for number, clients in enumerate(itertools.cycle(CLIENTS)):
            rate = run_phase(server, clients, SEED + 100 * number, phase_s)
            passed_s = time.perf_counter() - began
            bar.update(round(passed_s) - bar.n)
            found.append((clients, passed_s / 60, proportional_mb(server.process.pid), rate))
            if passed_s >= minutes * 60:
                break
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, serve=SERVE_WITH_ENGINES)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--phase-s", type=float, default=PHASE_S)
    parser.add_argument("--most-mb", type=float, default=500.0, help="The promised PSS at the end.")
    parser.add_argument("options", nargs="*", help="Options of `vecmill serve`.")
    with start(parser, arguments, seed=SEED) as run:
        serving = run.options.options
        found = measure(run.serve(*serving), run.options.minutes, run.options.phase_s)
    rows = [
        [f"{minute:.1f}", str(clients), f"{mb:.0f}", f"{rate:.0f}"] for clients, minute, mb, rate in found
    ]
    table = markdown_table(["minutes", "clients", "PSS, MB", "texts/s"], rows)
    print(f"\n{table}")
    save_page("memory", f"# Memory under mixed loads\n\n{json.dumps(serving)}\n\n{table}")
    figures = [
        Figure("at the start", "MB", (found[0][2],)),
        Figure("at the end", "MB", (found[-1][2],), run.options.most_mb),
        Figure("at most", "MB", (max(mb for _, _, mb, _ in found),)),
    ]
    return run.finish("memory", " ".join(serving), figures)


if __name__ == "__main__":
    sys.exit(main())
