"""Three clients with little work beside one that is hostile in every way: their waits, and their refusals.

    make bench-one-client

The three have API keys of their own, and send single texts and now and then a small request, in a process of
their own. First they are alone. Then the fourth key is hostile in one way after the other.
"""

import asyncio
import json
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.program import SERVE, make_parser, start
from bench.report import Figure
from chaos.floods import FLOODS, Scale, send_flood
from support.forked_process import ForkedProcess, run_process
from support.texts import mixed_texts
from vecmill_server.bench.load_results import summarise_latencies

TESTS = Path(__file__).parents[1]
SEED = 20_261_124
KEYS = ("one", "two", "three")
HOSTILE = "hostile"
WORDS = " ".join(["embedding"] * 150)
PAUSE_S = 0.1
SMALL_REQUEST_EVERY = 20  # one request in so many has this many texts
SMALL_REQUEST = 8
MOST_MEDIAN, MOST_P99 = 2.0, 5.0
FLOOD = Scale(connections=50, requests=20)
BLANK_BYTES = 60 * 2**20


def ask(url: str, key: str, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> int:
    """Send one request and return its status. A broken connection raises `OSError`."""
    given = {"authorization": f"Bearer {key}", "content-type": "application/json", **(headers or {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url + path, content, given), timeout=300
        ) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            error.read()
        return error.code


# The three, in a process of their own.


def run_quiet(url: str, seconds: float, seed: int, pause_s: float) -> None:
    """Be the three clients for some seconds, and print latencies and statuses as JSON."""
    texts = mixed_texts(seed, 400)
    found: list[tuple[float, int]] = []

    def send(key: str) -> None:
        draw = random.Random(f"{seed} {key}")
        until, number = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            number += 1
            count = 1 if number % SMALL_REQUEST_EVERY else SMALL_REQUEST
            inputs = [f"{key} {seed} {number} {draw.choice(texts)}" for _ in range(count)]
            body = json.dumps({"input": inputs, "encoding_format": "base64"}).encode()
            began = time.perf_counter()
            status = ask(url, key, "/v1/embeddings", body)
            found.append((time.perf_counter() - began, status))
            time.sleep(draw.expovariate(1 / pause_s) if pause_s else 0.0)

    threads = [threading.Thread(target=send, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(found))


def measure_quiet(url: str, seconds: float, seed: int, pause_s: float) -> list[tuple[float, int]]:
    """Return the latencies and statuses of the three clients, in another process."""
    command = _program("--quiet", url, str(seconds), str(seed), str(pause_s))
    answer = run_process(command, cwd=TESTS, timeout_s=seconds + 300.0)
    return [(float(latency), int(status)) for latency, status in json.loads(answer.stdout)]


# The hostile one. Each way is called again and again on `CONNECTIONS` threads.

CONNECTIONS = 4


def claim_to_be_interactive(url: str, number: int) -> None:
    """Send 2,048 texts of 150 words that claim to be interactive."""
    body = json.dumps({"input": [f"{number} {each} {WORDS}" for each in range(2_048)]}).encode()
    path = "/v1/embeddings" if number % 2 else "/interactive/v1/embeddings"
    ask(url, HOSTILE, path, body, {"x-priority": "interactive"} if number % 2 else {})


def send_many_small(url: str, number: int) -> None:
    """Send single texts without a pause, each as interactive."""
    for each in range(50):
        body = json.dumps({"input": f"{number} {each} {WORDS}", "priority": "interactive"}).encode()
        ask(url, HOSTILE, "/v1/embeddings", body)


def send_huge_texts(url: str, number: int) -> None:
    """Send texts of as many characters as are accepted."""
    body = json.dumps({"input": [f"{number} {each} " + "ab " * 300_000 for each in range(4)]}).encode()
    ask(url, HOSTILE, "/v1/embeddings", body, {"x-priority": "interactive"})


def ask_for_bytes(url: str, number: int) -> None:
    """Ask for int8 embeddings of many texts."""
    texts = [f"{number} {each} {WORDS}" for each in range(96)]
    body = {"texts": texts, "input_type": "search_document", "embedding_types": ["int8"], "model": "x"}
    ask(url, HOSTILE, "/v2/embed", json.dumps(body).encode())


def validate_blank_lines(url: str, number: int) -> None:
    """Upload a file of blank lines, and make batches of it."""
    _make_batch(url, b"\n" * BLANK_BYTES)


def fill_with_empty_files(url: str, number: int) -> None:
    """Upload empty files."""
    for _ in range(50):
        _upload(url, b"")


def flood(name: str) -> Callable[[str, int], None]:
    """Return a way that sends a flood of `chaos.floods`."""

    def send(url: str, number: int) -> None:
        found = FLOODS[name]
        port = int(url.rpartition(":")[2])
        asyncio.run(send_flood(port, found.prepare(url), FLOOD, is_pipelined=found.is_pipelined))

    return send


def _upload(url: str, content: bytes) -> tuple[int, Any]:
    head = b"--edge\r\ncontent-disposition: form-data; "
    form = head + b'name="purpose"\r\n\r\nbatch\r\n' + head + b'name="file"; filename="in.jsonl"\r\n\r\n'
    headers = {
        "authorization": f"Bearer {HOSTILE}",
        "content-type": "multipart/form-data; boundary=edge",
    }
    request = urllib.request.Request(f"{url}/v1/files", form + content + b"\r\n--edge--\r\n", headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            error.read()
        return error.code, None


def _make_batch(url: str, content: bytes) -> None:
    status, file = _upload(url, content)
    if status == 200:
        batch = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        ask(url, HOSTILE, "/v1/batches", json.dumps(batch).encode())


WAYS: Mapping[str, Callable[[str, int], None]] = MappingProxyType(
    {
        "2,048 texts that claim to be interactive": claim_to_be_interactive,
        "single texts without a pause": send_many_small,
        "texts of 900,000 characters": send_huge_texts,
        "int8 of 96 texts": ask_for_bytes,
        "files of blank lines": validate_blank_lines,
        "empty files": fill_with_empty_files,
        "metrics, pipelined": flood("metrics, pipelined"),
        "wrong keys, pipelined": flood("wrong keys, pipelined"),
    }
)


def run_hostile(url: str, way: Callable[[str, int], None]) -> None:
    """Be hostile in one way until the process is killed."""

    def attack(number: int) -> None:
        while True:
            try:
                way(url, number)
            except OSError:  # the server may close the connections of such a client
                time.sleep(0.01)
            number += CONNECTIONS

    for number in range(CONNECTIONS):
        threading.Thread(target=attack, args=(number,), daemon=True).start()
    threading.Event().wait()


def measure_beside(url: str, way: str, seconds: float, seed: int, pause_s: float) -> list[tuple[float, int]]:
    """Return what the three clients see while the fourth is hostile in one way.

    At the end its process is killed, and the server learns that the client has gone.
    """
    hostile = ForkedProcess[bytes](_program("--hostile", url, way), cwd=TESTS, stderr=subprocess.DEVNULL)
    try:
        return measure_quiet(url, seconds, seed, pause_s)
    finally:
        hostile.kill()
        hostile.wait()


def _program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench.one_client", *arguments]


def figures_of(
    alone: Sequence[tuple[float, int]], beside: Mapping[str, Sequence[tuple[float, int]]]
) -> list[Figure]:
    """The figures of all ways, with the promises."""
    quiet = summarise_latencies([latency for latency, _ in alone])
    figures = [Figure(f"alone, {name}", "ms", (1e3 * quiet[name],)) for name in ("p50", "p99")]
    for way, found in beside.items():
        waits = summarise_latencies([latency for latency, _ in found])
        figures += [Figure(f"{way}: {name}", "ms", (1e3 * waits[name],)) for name in ("p50", "p99")]
    everything = [each for found in beside.values() for each in found]
    waits = summarise_latencies([latency for latency, _ in everything])
    refused = sum(status != 200 for _, status in [*alone, *everything])
    return [
        *figures,
        Figure("all ways, p50 / alone", "ratio", (waits["p50"] / quiet["p50"],), MOST_MEDIAN),
        Figure("all ways, p99 / alone", "ratio", (waits["p99"] / quiet["p99"],), MOST_P99),
        Figure("requests of the three", "requests", (float(len(everything)),)),
        Figure("not answered with 200", "requests", (float(refused),), 0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, serve=SERVE)
    parser.add_argument("--seconds", type=float, default=8.0, help="How long each way lasts.")
    parser.add_argument("--pause-s", type=float, default=PAUSE_S, help="Mean pause of the three clients.")
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="All by default.")
    with start(parser, arguments, seed=SEED) as run:
        seconds, pause_s = run.options.seconds, run.options.pause_s
        keys = run.folder / "keys"
        keys.write_text("".join(f"{key} {key}\n" for key in (*KEYS, HOSTILE)), "utf-8")
        batches = run.folder / "batches"
        url = run.serve("--api-key-file", keys, "--batch-dir", batches, "--no-access-log").url
        measure_quiet(url, 2.0, SEED, pause_s)
        alone = measure_quiet(url, 2 * seconds, SEED + 1, pause_s)
        beside = {}
        for number, way in enumerate(run.options.way or WAYS):
            beside[way] = measure_beside(url, way, seconds, SEED + 2 + number, pause_s)
            print(f"{way}: {len(beside[way])} requests", flush=True)
    return run.finish("one_client", "three clients beside a hostile one", figures_of(alone, beside))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--quiet"]:
        run_quiet(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
        sys.exit()
    if sys.argv[1:2] == ["--hostile"]:
        run_hostile(sys.argv[2], WAYS[sys.argv[3]])
    sys.exit(main())
