"""A real server under heavy use answers what it admits, and refuses the rest at once."""

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.one_client import HOSTILE, KEYS, MOST_P99, PAUSE_S, WAYS, measure_beside, measure_quiet
from bench.overload import (
    BulkClient,
    ask,
    bulk_body,
    join_all,
    read_counts,
    run_bulk,
    start_all,
    wait_until_idle,
)
from support import paced_server
from support.server import LiveServer, live_server
from vecmill_server.bench.load_results import summarise_latencies

TEXTS = 64
# The seconds for which clients send. The first round of bulk requests finds what is refused too late.
BULK_S = 1.0
WATCHED_S = 1.0

PACED = (sys.executable, paced_server.__file__)
MODEL = (sys.executable, "-m", "vecmill")
# At full size the embedded model computes, and the deadlines are those of an idle machine.
AT_FULL_SIZE = pytest.param(MODEL, marks=[pytest.mark.full, pytest.mark.alone], id="model")
COMMANDS = [pytest.param(PACED, id="paced"), AT_FULL_SIZE]


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with keys of three clients and of a hostile one."""
    folder = tmp_path_factory.mktemp("server")
    keys = folder / "keys"
    keys.write_text("".join(f"{key} {key}\n" for key in (*KEYS, HOSTILE)), "utf-8")
    arguments = ["--no-access-log", "--api-key-file", str(keys)]
    with live_server(folder, arguments=arguments, command=request.param) as server:
        yield server


@pytest.mark.promise("many-clients")
@pytest.mark.parametrize("command", COMMANDS)
def test_bulk_requests_side_by_side_are_finished_and_nothing_is_computed_in_vain(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    arguments = ["--timeout-s", "5", "--no-access-log", "--api-key", "a", "--api-key", "b"]
    with live_server(tmp_path, arguments=arguments, command=command) as server:
        if command is MODEL:
            wait_until_idle(server.url)  # it computes sample texts of its own after its start
        until = time.perf_counter() + BULK_S
        clients = [
            BulkClient(server.url, [bulk_body(4 * n, TEXTS), bulk_body(4 * n + 1, TEXTS)], key, until, TEXTS)
            for n, key in enumerate("aabbbbbb")
        ]
        run = run_bulk(server.url, clients)
        assert set(run.statuses) <= {200, 429}
        assert sum(client.delivered for client in clients) >= TEXTS
        assert run.wasted_share <= 0.02
        expired = 'vecmill_texts_finished_total{model="all-MiniLM-L6-v2",outcome="expired"}'
        assert read_counts(server.url)[expired] == 0


@pytest.mark.promise("fair-keys")
def test_a_text_of_another_client_passes_the_bulk_requests_of_one(server: LiveServer) -> None:
    until = time.perf_counter() + WATCHED_S
    bulk = [BulkClient(server.url, [bulk_body(n, TEXTS)], KEYS[0], until, TEXTS) for n in range(3)]
    threads = start_all(bulk)
    passed = 0
    while any(thread.is_alive() for thread in threads) and not any(client.took_s for client in bulk):
        status, _ = ask(server.url, json.dumps({"input": f"a text {passed}"}).encode(), KEYS[1])
        assert status == 200
        passed += 1
    for path, body in (("/tokenize", b'{"inputs": "hello"}'), ("/livez", None), ("/metrics", None)):
        assert _status(server.url + path, body) == 200
    join_all(threads)
    assert {status for client in bulk for status in client.statuses} == {200}
    # Judged by their order: a busy machine delays the text and the bulk requests alike.
    assert passed >= 4


@pytest.mark.promise("nobody-shut-out", "fair-keys")
@pytest.mark.parametrize("way", ["2,048 texts that claim to be interactive", "texts of 900,000 characters"])
def test_nobody_is_refused_beside_a_client_that_is_hostile(server: LiveServer, way: str) -> None:
    found = measure_beside(server.url, way, WATCHED_S, seed=1, pause_s=0.05)
    assert len(found) >= len(KEYS)
    assert [status for _, status in found] == [200] * len(found)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.promise("nobody-shut-out", "fair-keys")
def test_a_client_that_is_hostile_in_every_way_shuts_nobody_out(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{key} {key}\n" for key in (*KEYS, HOSTILE)), "utf-8")
    arguments = ["--no-access-log", "--api-key-file", str(keys), "--batch-dir", str(tmp_path / "batches")]
    with live_server(tmp_path, arguments=arguments) as server:
        wait_until_idle(server.url)
        alone = measure_quiet(server.url, 16.0, seed=1, pause_s=PAUSE_S)
        beside = [
            each
            for seed, way in enumerate(WAYS)
            for each in measure_beside(server.url, way, 8.0, seed=seed + 2, pause_s=PAUSE_S)
        ]
    assert {status for _, status in [*alone, *beside]} == {200}
    p99_s = [summarise_latencies([latency for latency, _ in found])["p99"] for found in (alone, beside)]
    assert p99_s[1] <= MOST_P99 * p99_s[0]


def _status(url: str, body: bytes | None) -> int:
    request = urllib.request.Request(url, data=body, headers={"authorization": f"Bearer {KEYS[1]}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(answer.status)
