"""`vecmill bench`: it counts what the server answered, and never reports the limit of its own generator."""

import asyncio
import json
import math
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from server.scripted_http import response, scripted_server
from support.http_server import serve_in_thread
from vecmill.errors import ServerFailed
from vecmill_server.bench.command import bench
from vecmill_server.bench.generator import LoadRun, Orders
from vecmill_server.bench.load_results import (
    UNANSWERED,
    BenchLoad,
    LoadResult,
    format_table,
    summarise_latencies,
)
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

EMBEDDINGS = json.dumps({"data": [{"embedding": "AAAA"}], "usage": {"prompt_tokens": 7}}).encode()
MODELS = json.dumps({"data": [{"id": "one"}]}).encode()
QUICK = ("--texts", "short", "--seconds", "1", "--warm-seconds", "0")


def run(*arguments: str, folder: Path | None = None) -> Result:
    output = ("-o", str(folder)) if folder else ()
    return CliRunner().invoke(bench, [*QUICK, *arguments, *output], env={"VECMILL_BENCH_API_KEY": "the-key"})


def results(folder: Path) -> list[Any]:
    return list(json.loads((folder / "bench.json").read_text("utf-8"))["results"])


def drive(url: str, *, duration_s: float = 0.2, **load: float) -> Mapping[str, Any]:
    """The figures of the generator, in this process and with one body."""
    target = MeasuredServer.of(url, ServerApi.EMBEDDINGS, None)
    orders = {
        "clients": None,
        "rate_hz": None,
        "duration_s": duration_s,
        "warm_s": 0.0,
        "timeout_s": 20.0,
        **load,
    }
    run = LoadRun(Orders(target, bodies_file="", seed=5, **orders), [b"{}"])  # type: ignore[arg-type]
    return asyncio.run(run.run())


def test_it_measures_a_server_by_closed_and_open_loops(tmp_path: Path) -> None:
    with serve_in_thread() as server:
        url = f"http://127.0.0.1:{server.port}"
        done = run("--url", url, "--clients", "2", "--rate", "50", "--batch", "4", folder=tmp_path)
    # A request is counted after its response: the last one before the server has stopped.
    answered = server.metric("vecmill_http_requests_total", route="embeddings", status="200")
    closed, opened = results(tmp_path)
    assert closed["statuses"].keys() == opened["statuses"].keys() == {"200"}
    # Beside the counted requests the server answered 33 test requests, one for each of 2 clients at the end
    # of the closed loop, and at least one after each load that shows that the server is idle.
    counted = closed["statuses"]["200"] + opened["statuses"]["200"]
    assert counted + 33 + 2 <= answered <= counted + 33 + 2 + 8
    for found in (closed, opened):
        assert found["texts_per_s"] == pytest.approx(4 * found["requests_per_s"])
        assert found["tokens_per_s"] > found["texts_per_s"]
        names = ("min", "p50", "p90", "p95", "p99", "max")
        times = [found["latency_ms"][name] for name in names if name in found["latency_ms"]]
        assert len(times) >= 4
        assert times == sorted(times)
        assert times[0] > 0
    assert "2 clients" in done.output
    assert "50 requests/s" in done.output


def test_an_open_loop_sends_at_the_drawn_times_and_counts_the_wait_behind_slow_responses() -> None:
    turn = asyncio.Lock()

    async def respond(_head: bytes, _body: bytes) -> bytes:
        async with turn:  # one request at a time, each for 20 ms
            await asyncio.sleep(0.02)
        return response(EMBEDDINGS)

    with scripted_server(respond) as server:
        found = drive(server.url, rate_hz=150, duration_s=0.5)
    chance, due, count = random.Random(5), 0.0, 0
    while (due := due + chance.expovariate(150)) < 0.5:
        count += 1
    assert found["statuses"] == {200: count}
    # With 150 requests a second and 50 responses a second, the last request waits for about a second.
    assert found["percentiles_s"]["max"] > 0.5
    assert found["percentiles_s"]["min"] >= 0.02
    # The rate is that of the responses, and not of the requests.
    assert 0 < found["answered"] / found["elapsed_s"] <= 50
    assert found["open_at_end"] == count - found["answered"]


@pytest.mark.parametrize("clients", [1, 3, 9])
def test_a_closed_loop_of_n_requests_sends_no_more_and_ends_with_the_last_response(clients: int) -> None:
    sent = 0

    async def respond(_head: bytes, _body: bytes) -> bytes | None:
        nonlocal sent
        sent += 1
        return None if sent == 2 else response(EMBEDDINGS)  # a broken connection is a request too

    with scripted_server(respond) as server:
        found = drive(server.url, clients=clients, requests=7, duration_s=20.0)
    assert sent == sum(found["statuses"].values()) == 7
    assert found["statuses"] == {0: 1, 200: 6}
    assert 0 < found["elapsed_s"] < 10


@pytest.mark.parametrize("kind", ["chunked", "close", "interim"])
def test_any_framing_of_responses_is_read(kind: str) -> None:
    answers = {
        "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "close": response(EMBEDDINGS, headers="connection: close\r\n"),
        "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + response(EMBEDDINGS),
    }

    async def respond(_head: bytes, _body: bytes) -> bytes:
        return answers[kind]

    with scripted_server(respond) as server:
        statuses = drive(server.url, clients=3)["statuses"]
        assert statuses.keys() == {200}
        assert len(server.requests) >= statuses[200] > 3


@pytest.mark.parametrize("load", [{"rate_hz": 100}, {"clients": 3}])
def test_requests_without_an_answer_are_counted_when_their_time_is_over(load: dict[str, float]) -> None:
    async def respond(_head: bytes, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    with scripted_server(respond) as server:
        found = drive(server.url, timeout_s=0.25, **load)
    assert found["statuses"].keys() == {UNANSWERED}
    assert found["open_at_end"] == found["statuses"][UNANSWERED] == len(server.requests) >= 3
    assert 0 < found["oldest_open_s"] <= 0.25


def test_a_closed_loop_ends_when_the_server_has_no_open_request() -> None:
    answered = 0

    async def respond(_head: bytes, _body: bytes) -> bytes:
        nonlocal answered
        await asyncio.sleep(0.15)
        answered += 1
        return response(EMBEDDINGS)

    with scripted_server(respond) as server:
        found = drive(server.url, clients=3)
        assert answered == len(server.requests) == 6
    # Those that were open at the end are not counted.
    assert found["statuses"] == {200: 3}
    assert found["open_at_end"] == 3


def test_a_limit_of_the_generators_machine_is_no_error_of_the_server(tmp_path: Path) -> None:
    async def respond(_head: bytes, _body: bytes) -> bytes:
        await asyncio.sleep(0.2)
        return response(EMBEDDINGS)

    (tmp_path / "bodies").write_text("{}\n")
    with scripted_server(respond) as server:
        target = MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None)
        orders = Orders(
            target,
            str(tmp_path / "bodies"),
            clients=60,
            rate_hz=None,
            duration_s=5.0,
            warm_s=0.0,
            timeout_s=5.0,
            seed=1,
        )
        command = f"ulimit -n 40; exec {sys.executable} -m vecmill_server.bench.generator"
        written = json.dumps(asdict(orders)).encode()
        done = subprocess.run(["sh", "-c", command], input=written, capture_output=True)
    found = json.loads(done.stdout)
    assert found["shortage"] == "Too many open files"
    assert found["statuses"].keys() <= {"200"}


def test_error_responses_and_broken_connections_are_counted_and_end_with_status_1(
    tmp_path: Path,
) -> None:
    sent = 0

    async def respond(head: bytes, _body: bytes) -> bytes | None:
        nonlocal sent
        if head.startswith(b"GET"):
            return response(MODELS)
        sent += 1
        if sent <= 32:
            return response(EMBEDDINGS)
        if sent % 7 == 0:
            return None
        return response(b"{}", status="429 Too Many Requests") if sent % 2 else response(EMBEDDINGS)

    with scripted_server(respond) as server:
        done = run("--url", server.url, "--clients", "2", folder=tmp_path)
    (found,) = results(tmp_path)
    assert found["statuses"].keys() == {"0", "200", "429"}
    assert found["errors"] == found["statuses"]["0"] + found["statuses"]["429"] > 0
    assert 0 < found["error_latency_ms"]["p50"] <= found["error_latency_ms"]["max"]
    assert found["requests_per_s"] == found["statuses"]["200"] / found["elapsed_s"]
    assert done.exit_code == 1
    assert f"{found['statuses']['429']} with status 429" in done.output
    assert f"{found['statuses']['0']} broken connections" in done.output


@pytest.mark.full
def test_the_bodies_are_sent_with_the_key_out_of_sight(tmp_path: Path) -> None:
    async def respond(head: bytes, _body: bytes) -> bytes:
        return response(MODELS) if head.startswith(b"GET") else response(EMBEDDINGS)

    with scripted_server(respond) as server:
        done = run("--url", server.url, "--clients", "2", folder=tmp_path)
    (found,) = results(tmp_path)
    # The tokens of 32 requests of about the mean length, for each byte.
    assert found["tokens_per_s"] == pytest.approx(7 * found["requests_per_s"], rel=0.05)
    assert all(b"authorization: bearer the-key" in head.lower() for head, _ in server.requests)
    assert {json.loads(body)["model"] for _, body in server.requests[1:]} == {"one"}
    assert "the-key" not in done.output + (tmp_path / "bench.json").read_text("utf-8")


@pytest.mark.full
def test_bulk_clients_run_beside_the_load_and_are_reported_apart(tmp_path: Path) -> None:
    with serve_in_thread() as server:
        url = f"http://127.0.0.1:{server.port}"
        run("--url", url, "--rate", "20", "--bulk-clients", "1", "--bulk-batch", "8", folder=tmp_path)
    single, bulk = results(tmp_path)
    assert (single["texts_per_request"], single["rate_hz"]) == (1, 20)
    assert (bulk["texts_per_request"], bulk["clients"]) == (8, 1)
    assert bulk["statuses"]["200"] > 0


RESULT = LoadResult(BenchLoad("short", 1, rate_hz=10), 10.0, {200: 100}, 0.1, {"p99": 0.05, "max": 0.05})


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (RESULT, None),
        (replace(RESULT, processor_share=0.9), "90% of a core"),
        (replace(RESULT, delay_p99_s=0.009), None),
        (replace(RESULT, delay_p99_s=0.02), "20 ms late"),
        (replace(RESULT, delay_p99_s=0.02, percentiles_s={"p99": 2.0}), None),
        (replace(RESULT, delay_p50_s=0.0009), None),
        (replace(RESULT, delay_p50_s=0.002, percentiles_s={"p50": 0.01, "p99": 2.0}), "2.0 ms late"),
        (replace(RESULT, shortage="Too many open files"), "Too many open files"),
    ],
    ids=["free", "busy", "in time", "late", "late by little", "soon", "half late", "no files"],
)
def test_figures_of_which_the_generator_was_the_limit_are_not_reported(
    result: LoadResult, reason: str | None
) -> None:
    table = format_table([result])
    assert (result.refusal is None) == (reason is None)
    assert ("10.0" in table.splitlines()[1]) == (reason is None)
    assert reason is None or reason in table


@pytest.mark.parametrize(("requests", "shown"), [(99, ["p50", "p90", "p95"]), (9, ["p50"]), (100, None)])
def test_a_percentile_with_too_few_latencies_above_it_is_left_out(
    requests: int, shown: list[str] | None
) -> None:
    names = ["p50", "p90", "p95", "p99"]
    found = replace(RESULT, statuses={200: requests}, percentiles_s=dict.fromkeys(names, 0.05))
    assert list(found.document()["latency_ms"]) == (shown or names)
    heading, line = format_table([found]).splitlines()
    assert heading.split().count("p99") == 1
    assert line.count("50.0") == len(shown or names)


def test_a_server_that_answers_nothing_has_failed() -> None:
    found = replace(RESULT, statuses={}, percentiles_s={}, open_at_end=3, oldest_open_s=9.8)
    table = format_table([found])
    assert "no request was answered with status 200 in 10 s." in table
    assert "open at the end: 3 requests, the oldest for 9.8 s." in table
    assert "open at the end" not in format_table([replace(RESULT, open_at_end=3, oldest_open_s=0.04)])


def test_percentiles_are_latencies_that_were_measured() -> None:
    latencies = [0.001 * number for number in range(1, 101)]
    random.Random(3).shuffle(latencies)
    found = summarise_latencies(latencies)
    expected = {
        "min": 0.001,
        "mean": 0.0505,
        "stdev": math.sqrt((100**2 - 1) / 12) / 1000,
        "p50": 0.05,
        "p90": 0.09,
        "p95": 0.095,
        "p99": 0.099,
        "max": 0.1,
    }
    assert found == pytest.approx(expected)
    assert summarise_latencies([]) == {}


def test_where_nothing_listens_it_says_so_and_what_to_start() -> None:
    with socket.socket() as unused:  # bound, but not listening
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for model in ((), ("--model", "a")):
            done = run("--url", f"http://127.0.0.1:{port}", *model)
            assert isinstance(done.exception, ServerFailed)
            assert f"Cannot connect to 127.0.0.1 at port {port}" in done.exception.message
            assert "vecmill serve" in done.exception.message
