"""Hostile texts do not stop the server: probes and short requests are answered while it works on them."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support.livez_gap import LivezGap, livez_gap
from support.server import LiveServer, live_server

# Beyond the longest gap of an idle process beside the server.
LONGEST_GAP_S = 0.25
LARGEST_BODY = 32 * 1024 * 1024
WORDS = "the quick brown fox jumps over the lazy dog "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server whose engine takes no time: what is judged is what comes before and after it."""
    with live_server(tmp_path_factory.mktemp("server"), arguments=("--engine", "fake")) as server:
        yield server


@pytest.fixture(scope="module")
def model_server(tmp_path_factory: pytest.TempPathFactory, kept_models: Path) -> Iterator[LiveServer]:
    """A server of the embedded model."""
    with live_server(tmp_path_factory.mktemp("server"), cache=kept_models) as server:
        yield server


def measure_gap(server: LiveServer) -> AbstractContextManager[LivezGap]:
    """Measure the gaps of a server until the block ends."""
    return livez_gap(int(server.url.rpartition(":")[2]))


def post(server: LiveServer, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"{server.url}{path}", body, {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def text_of(length: int, piece: str = WORDS) -> str:
    return (piece * (length // len(piece) + 1))[:length]


def embeddings(**body: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/embeddings", body


def tokens(*texts: str) -> tuple[str, dict[str, Any]]:
    return "/tokenize", {"inputs": texts}


def ids(count: int) -> tuple[str, dict[str, Any]]:
    return "/decode", {"ids": [[2_000 + number % 20_000 for number in range(count)]]}


# Path, body, expected status.
SMALL = (
    (*embeddings(input=["a"] * 32, prompt=text_of(400_000)), 200),
    (*embeddings(input=["a"] * 1_000, prompt=text_of(400_000)), 413),
    (*embeddings(input=[""] * 2_048), 200),
    (*embeddings(input=text_of(500_000)), 200),
    (*embeddings(input=text_of(500_000), truncate=False), 400),
    (*embeddings(input=text_of(500_000, "漢字")), 200),
    (*embeddings(input="e" + "\u0301" * 100_000), 200),
    (*embeddings(input="a" * 500_000), 200),
    (*embeddings(input=" " * 500_000), 200),
    (*tokens(text_of(300_000)), 200),
    (*tokens(*[text_of(1_000_000)] * 4), 413),
    (*tokens("." * 100_000), 200),
    (*tokens("." * 1_000_000), 413),
    (*embeddings(input="." * 1_000_000, chunking={"mode": "chunks", "tokens": 100}), 413),
    (*ids(150_000), 200),
)
FULL = {
    "a long prompt for many inputs": (*embeddings(input=["a"] * 1_000, prompt=text_of(500_000)), 413),
    "a long prompt": (*embeddings(input=["a"] * 32, prompt=text_of(490_000)), 200),
    "a long text": (*embeddings(input=text_of(1_000_000)), 200),
    "a long text that may not be cut": (*embeddings(input=text_of(1_000_000), truncate=False), 400),
    "16 long texts": (*embeddings(input=[text_of(999_000)] * 16), 200),
    "10 long texts in ideographs": (*embeddings(input=[text_of(999_000, "漢字")] * 10), 200),
    "a word of a million letters": (*embeddings(input="a" * 1_000_000), 200),
    "a million spaces": (*embeddings(input=" " * 1_000_000), 200),
    "a million combining marks": (*embeddings(input="e" + "\u0301" * 999_999), 200),
    "16 texts of a million characters": (*tokens(*[text_of(1_000_000)] * 16), 413),
    "a million full stops": (*tokens("." * 1_000_000), 413),
    "a million full stops in chunks": (
        *embeddings(input="." * 1_000_000, chunking={"mode": "chunks", "tokens": 100}),
        413,
    ),
    "a million full stops that are cut": (*embeddings(input="." * 1_000_000), 413),
    "as many full stops as are read": (*tokens("." * 390_000), 200),
    "600,000 tokens": (*tokens(*[text_of(950_000)] * 3), 200),
    "600,000 token ids": (*ids(600_000), 200),
    "2,048 texts, quantised": (
        "/v2/embed",
        {
            "texts": [f"text {number}" for number in range(2_048)],
            "model": "all-MiniLM-L6-v2",
            "input_type": "search_document",
            "embedding_types": ["float", "int8", "uint8", "binary", "ubinary", "base64"],
        },
        200,
    ),
    "many documents for a long query": (
        "/rerank",
        {"query": text_of(500_000), "documents": [text_of(7_000)] * 500},
        200,
    ),
}


def assert_memory_is_bounded(server: LiveServer) -> None:
    """Judge the largest memory so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"peak {int(peak) / 1e6:.2f} GB")
    assert int(peak) < 1_500_000  # kB


@pytest.mark.linux
@pytest.mark.promise("loop-responsive", "bounded-memory", "bounded-input")
def test_probes_are_answered_while_texts_are_hostile(server: LiveServer) -> None:
    bodies = [(path, encode(body), status) for path, body, status in SMALL]
    with measure_gap(server) as gap:
        answers = [post(server, path, body) for path, body, _ in bodies]
    assert [status for status, _ in answers] == [status for *_, status in bodies]
    assert gap.beyond_control_s < LONGEST_GAP_S
    assert_memory_is_bounded(server)


@pytest.mark.promise("loop-responsive", "bounded-memory", "bounded-input")
@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_probes_are_answered_while_texts_are_as_large_as_may_be(model_server: LiveServer, name: str) -> None:
    path, body, expected = FULL[name]
    encoded = encode(body)
    with measure_gap(model_server) as gap:
        status, content = post(model_server, path, encoded)
    assert status == expected, content[:300]
    assert gap.beyond_control_s < LONGEST_GAP_S
    assert_memory_is_bounded(model_server)


def bomb(piece: bytes, opening: bytes = b'{"input":[', closing: bytes = b"1]}") -> bytes:
    """A body of almost 32 MiB that is mostly structure."""
    return opening + piece * ((LARGEST_BODY - 100) // len(piece)) + closing


BOMBS = {
    "empty lists": lambda: bomb(b"[],"),
    "small objects": lambda: bomb(b'{"a":1},'),
    "deep lists": lambda: bomb(b"[", closing=b""),
    "short strings": lambda: bomb(b'"a",'),
    "numbers": lambda: bomb(b"1,"),
    "keys": lambda: bomb(b'"a":1,', opening=b'{"input":{', closing=b'"b":1}}'),
    "escapes": lambda: bomb(b"\\u0000", opening=b'{"input":"', closing=b'"}'),
}


@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize("at_once", [1, pytest.param(16, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", BOMBS)
def test_probes_are_answered_while_bodies_are_mostly_structure(
    server: LiveServer, name: str, at_once: int
) -> None:
    body = BOMBS[name]()
    with measure_gap(server) as gap, ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda _: post(server, "/v1/embeddings", body)[0], range(at_once)))
    assert set(answers) <= {400, 413, 429, 503}
    assert {400, 413} & set(answers)
    assert gap.beyond_control_s < LONGEST_GAP_S


@pytest.mark.linux
@pytest.mark.promise("no-starvation", "loop-responsive")
@pytest.mark.parametrize(
    ("name", "texts", "patience_s"),
    [("server", 1, 2.0), pytest.param("model_server", 15, 1.0, marks=pytest.mark.full)],
    ids=["small", "full"],
)
def test_a_short_request_does_not_wait_for_large_ones(
    request: pytest.FixtureRequest, name: str, texts: int, patience_s: float
) -> None:
    server = request.getfixturevalue(name)
    headers = {"x-request-timeout-ms": f"{patience_s * 1000:.0f}"}
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(post(server, "/tokenize", large)[0])) for _ in range(2)
    ]
    large = encode({"inputs": [text_of(999_000, "漢字, ")] * texts})
    with measure_gap(server) as gap:
        for thread in threads:
            thread.start()
        for attempt in range(5):
            time.sleep(0.05)
            short = encode({"input": f"{attempt} {text_of(1_100)}"})
            began = time.perf_counter()
            status, content = post(server, "/v1/embeddings", short, **headers)
            assert status == 200, content
            assert time.perf_counter() - began < patience_s
        for thread in threads:
            thread.join()
    assert answers == [413, 413]
    assert gap.beyond_control_s < LONGEST_GAP_S
    assert_memory_is_bounded(server)
