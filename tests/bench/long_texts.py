"""Long texts: alone, beside sentence-transformers, and through a server beside short texts of another client.

The part `library` compares `SyncMill` with sentence-transformers, each in a process of its own, in turn:
one text at a time, and many texts of 0.75 to 1.25 times the length at once, which sentence-transformers
computes in its best batch size.

Alone, one text of each length: seconds, the memory beyond that of the loaded model, and a short text
afterwards. Then a server gets the longest text from one client, and ten short texts a second from another
meanwhile.

make bench-long
"""

import json
import random
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.long_text_rival import Embedded, OurRival, TheirRival
from bench.overload import ask
from bench.program import make_parser, start
from bench.report import Figure, at_least, print_table
from bench.rigs import remote_process
from bench.size_models import SHAPES
from bench.sizes import run_script
from support.server import live_server
from vecmill_server.bench.load_results import summarise_latencies

LENGTHS = (128, 512, 1024, 2048, 4096, 8192)
PEAK_MB = 2000.0
KEPT_MB = 100.0
SEED = 20_260_109
SHORT_TOKENS = 16
ALONE_S = 5.0
BESIDE_MS = 200.0
SHORT_PER_S = 10.0
# With fewer short texts, their p99 is not known.
FEWEST_BESIDE = 50
START_S = 300.0
# Of the part `library`.
SHORTER_TOKENS, SHORTER_RATIO, LONGER_RATIO = 1024, 1.05, 1.15
DIFFERENCE = {"fp32": 1e-4, "bf16": 0.05}
AT_ONCE_TOKENS, FEWEST_AT_ONCE, MOST_AT_ONCE = 16_384, 4, 16
BATCH_SIZES = (1, 4, 16)
LONGEST, SPECIAL_TOKENS = 8192, 2
Embedding = Callable[..., Embedded]
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


def measure(
    model: Path, cache: Path, engine: str, width: int, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """What `long_text_probe` says about one engine and number of cores."""
    answer = run_script(Path(sys.executable), "long_text_probe.py", model, cache, engine, width, *lengths)
    told: list[dict[str, Any]] = json.loads(answer.splitlines()[-1])
    return told


def token_ids(length: int, seed: int) -> bytes:
    """The body of a request of one text with this many tokens, which no other seed has."""
    dice = random.Random(seed)
    return json.dumps({"input": [[dice.randrange(5, 1000) for _ in range(length)]]}).encode()


def time_short(url: str, number: int) -> float:
    """The milliseconds of a short text of the second client. Raises `AssertionError` if it is refused."""
    body = token_ids(SHORT_TOKENS, SEED + number)
    began = time.perf_counter()
    status, _ = ask(url, body, "short")
    assert status == 200, status
    return 1000 * (time.perf_counter() - began)


def wait_for_turn(number: int) -> None:
    """Wait until the next short text is due. The times between them are those of a Poisson process."""
    time.sleep(random.Random(SEED + number).expovariate(SHORT_PER_S))


def draw_texts(length: int, count: int, seed: int) -> list[str]:
    """Texts of words that are one token each; several have 0.75 to 1.25 times the length in tokens."""
    dice = random.Random(seed)
    lengths = [length] if count == 1 else [round(length * dice.uniform(0.75, 1.25)) for _ in range(count)]
    return [" ".join(dice.choices(WORDS, k=min(one, LONGEST) - SPECIAL_TOKENS)) for one in lengths]


def measure_library(
    name: str, model: Path, cache: Path, precision: str, lengths: Sequence[int], rounds: int
) -> list[Figure]:
    """Texts through the library, alone and many at once, in turn with sentence-transformers."""
    figures: list[Figure] = []
    with (
        remote_process(OurRival, model, precision, cache) as ours,
        remote_process(TheirRival, model, precision, cache) as theirs,
    ):
        rivals = partial(ours, "embed"), partial(theirs, "embed")
        for length in lengths:
            at_once = max(FEWEST_AT_ONCE, min(MOST_AT_ONCE, AT_ONCE_TOKENS // length))
            for count in (1, at_once):
                company = "alone" if count == 1 else f"{count} at once"
                label = f"{name}, {precision}, {length} tokens, {company}"
                figures += compare(label, rivals, length, count, rounds)
                print_table(label, figures[-4:])
    return figures


def compare(
    label: str, rivals: tuple[Embedding, Embedding], length: int, count: int, rounds: int
) -> list[Figure]:
    """The texts a second of both, their ratio, and the largest difference of a number of an embedding."""
    ours, theirs = rivals
    batch = 1
    if count > 1:
        tried = draw_texts(length, count, SEED)
        batch = min(BATCH_SIZES, key=lambda size: theirs(tried, size)[0])
    speeds: list[tuple[float, float]] = []
    difference = 0.0
    for number in range(rounds):
        texts = draw_texts(length, count, SEED + number + 1)
        our_s, found = ours(texts)
        their_s, expected = theirs(texts, batch)
        speeds.append((count / our_s, count / their_s))
        difference = max(difference, float(np.abs(found - expected).max()))
    bound = SHORTER_RATIO if length <= SHORTER_TOKENS else LONGER_RATIO
    return [
        Figure(f"{label}: vecmill", "texts/s", tuple(speed for speed, _ in speeds)),
        Figure(f"{label}: sentence-transformers, {batch} a batch", "texts/s", tuple(s for _, s in speeds)),
        at_least(f"{label}: ratio", "ratio", [a / b for a, b in speeds], bound),
        Figure(f"{label}: difference", "", (difference,), DIFFERENCE[label.split(", ")[-3]]),
    ]


def measure_beside(name: str, model: Path, folder: Path, length: int) -> list[Figure]:
    """The short texts of one client while the long text of another is computed, and the server afterwards."""
    folder.mkdir()
    arguments = [str(model), "--token-ids", "native", "--no-access-log", "--api-key", "long"]
    with live_server(folder, arguments=[*arguments, "--api-key", "short"], timeout_s=START_S) as server:
        url, number, alone, beside = server.url, 0, [], []
        end = time.perf_counter() + ALONE_S
        while time.perf_counter() < end:
            wait_for_turn(number)
            alone.append(time_short(url, number := number + 1))
        statuses: list[int] = []
        body = token_ids(length, SEED)
        asking = threading.Thread(target=lambda: statuses.append(ask(url, body, "long")[0]), daemon=True)
        began = time.perf_counter()
        asking.start()
        while asking.is_alive():
            wait_for_turn(number)
            beside.append(time_short(url, number := number + 1))
        took_s = time.perf_counter() - began
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:  # raises unless it is 200
            answer.read()
    print(
        f"\n{name}, {length} tokens through a server: {statuses[0]} after {took_s:.1f} s, {len(beside)} short"
    )
    label = f"{name}, server, {length} tokens"
    return [
        Figure(label, "s", (took_s,)),
        Figure(f"{label}: not answered", "requests", (float(statuses != [200]),), 0),
        at_least(f"{label}: short texts beside it", "requests", [len(beside)], FEWEST_BESIDE),
        Figure(f"{label}: short text alone, p99", "ms", (summarise_latencies(alone)["p99"],)),
        Figure(f"{label}: short text beside it, p99", "ms", (summarise_latencies(beside)["p99"],), BESIDE_MS),
    ]


def measure_alone(name: str, told: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """One text of each length on one engine: its time, its memory, and a short text before and afterwards."""
    figures = []
    for one in told:
        label = f"{name}, {one['length']} tokens"
        figures += [
            Figure(label, "s", (one["seconds"],)),
            Figure(f"{label}: processor time", "s", (one["processor_s"],)),
            Figure(f"{label}: memory beyond the model", "MB", (one["peak_mb"],), PEAK_MB),
            Figure(f"{label}: memory kept", "MB", (one["kept_mb"],), KEPT_MB),
            Figure(f"{label}: a short text before", "ms", (one["short_before_ms"],)),
            Figure(f"{label}: a short text afterwards", "ms", (one["short_after_ms"],)),
        ]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=2)
    parser.add_argument("--shape", default="ModernBERT-base", choices=sorted(SHAPES))
    parser.add_argument("--engine", action="append", help="onnx by default")
    parser.add_argument("--width", action="append", type=int, help="The cores of a call; 1 and 2 by default.")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument(
        "--parts", nargs="+", default=["alone", "beside"], choices=["alone", "library", "beside"]
    )
    parser.add_argument(
        "--precision", default="fp32", choices=sorted(DIFFERENCE), help="Of the part library, as the rounds."
    )
    figures: list[Figure] = []
    with start(parser, arguments) as run:
        options, folder = run.options, run.folder
        shape, lengths, model = options.shape, options.lengths, folder / "model"
        run_script(Path(sys.executable), "size_models.py", shape, folder)
        if "library" in options.parts:
            cache = folder / "library"
            figures += measure_library(shape, model, cache, options.precision, lengths, options.rounds)
        if "beside" in options.parts:
            figures += measure_beside(shape, model, folder / "server", max(lengths))
        for engine in (options.engine or ["onnx"]) if "alone" in options.parts else []:
            for width in options.width or [1, 2]:
                told = measure(model, folder / "cache", engine, width, lengths)
                figures += measure_alone(f"{shape}, {engine}, {width} cores", told)
    return run.finish("long_texts", f"long texts, {shape}", figures)


if __name__ == "__main__":
    sys.exit(main())
