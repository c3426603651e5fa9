"""The measurements measure what they say: small runs, and what they are made of."""

import os
import re
import shutil
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.beside import MOST_CALLS, Round, figures_of
from bench.corpus import Corpus, told_rate
from bench.encodings import ENCODINGS, EncodingRun, bytes_per_text, request_body
from bench.encodings import figures_of as figures_of_encodings
from bench.generator import run_load, write_bodies
from bench.process_use import memory_mib, processor_s, read_times
from bench.processes import Load
from bench.report import Figure
from bench.rigs import run_in_threads, shuffled, sorted_batches
from support.alone import turn
from support.http_server import DIM, QUIET, serve_in_thread
from support.server import LiveServer
from support.source_tree import ROOT
from support.texts import short_texts
from vecmill.values.batch import Batch, TokenSequence
from vecmill_server.base.settings import TokenIds
from vecmill_server.bench.load_results import BenchLoad, LoadResult, summarise_latencies

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


def test_each_command_of_make_is_a_benchmark() -> None:
    named = re.findall(r"-m (bench\.[\w.]+)", (ROOT / "Makefile").read_text("utf-8"))
    files = [ROOT / "tests" / f"{name.replace('.', '/')}.py" for name in named]
    assert len(files) > 30
    assert [file.name for file in files if not file.is_file()] == []


def test_each_encoding_is_answered_and_the_raw_ones_have_fewest_bytes() -> None:
    texts = 32
    with serve_in_thread(replace(QUIET, token_ids=TokenIds.NATIVE)) as server:
        address = f"http://127.0.0.1:{server.port}"
        sizes = {
            name: bytes_per_text(address, request_body(encoding, texts))
            for name, encoding in ENCODINGS.items()
        }
    assert sorted(sizes, key=lambda name: -sizes[name]) == [
        "JSON numbers",
        "base64, float32",
        "bytes, float32",
        "bytes_only, float32",
        "base64, float16",
        "bytes_only, float16",
        "bytes_only, fp8_e4m3",
        "bytes_only, ubinary",
    ]
    assert sizes["bytes_only, float32"] < 4 * DIM + 32
    run = EncodingRun(texts_per_s=10.0, server_us=100.0, wrk_share=0.9)
    runs = {name: [run] for name in ENCODINGS}
    figures = {figure.name: figure for figure in figures_of_encodings(runs, sizes, sizes)}
    assert not figures["JSON numbers: wrk"].holds
    assert figures["bytes, float32: against base64"].median == 1.0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 80))
def test_batches_hold_each_text_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = sorted_batches([TokenSequence.of([number] * n) for number, n in enumerate(lengths)], budget)
    held = Counter(token for batch in batches for token in batch.token_ids.tolist())
    assert held == Counter(dict(enumerate(lengths)))
    assert all(len(batch.token_ids) <= budget or len(batch) == 1 for batch in batches)


def test_tests_share_the_machine_unless_one_needs_it_alone(tmp_path: Path) -> None:
    order: list[str] = []

    def run(name: str, *, alone: bool) -> None:
        with turn(tmp_path, alone=alone):
            order.append(name)

    with turn(tmp_path, alone=False):
        run("beside", alone=False)
        waiting = threading.Thread(target=run, args=("alone",), kwargs={"alone": True})
        waiting.start()
        waiting.join(0.05)
        order.append("first")
    waiting.join()
    assert order == ["beside", "first", "alone"]


def test_threads_run_each_batch_once() -> None:
    batches = [Batch.of([TokenSequence.of([number])]) for number in range(50)]
    ran: list[int] = []
    lock = threading.Lock()

    def run(batch: Batch) -> None:
        with lock:
            ran.append(int(batch.token_ids[0]))

    assert run_in_threads(run, batches, threads=3) > 0
    assert sorted(ran) == list(range(50))


def test_a_figure_knows_whether_its_promise_holds() -> None:
    assert Figure("a", "s", (1.0, 2.0, 9.0), bound=2.0).holds
    assert not Figure("a", "s", (1.0, 2.1, 3.0), bound=2.0).holds
    assert Figure("a", "ratio", (0.9,), bound=0.9, at_most=False).holds
    assert not Figure("a", "ratio", (0.89,), bound=0.9, at_most=False).holds
    assert "MISSED" in Figure("a", "s", (3.0,), bound=2.0).promise


@pytest.mark.linux
def test_memory_and_processor_time_of_this_process() -> None:
    resident, proportional = memory_mib(os.getpid())
    assert resident >= proportional > 10
    before = processor_s(os.getpid())
    sum(range(5_000_000))
    assert processor_s(os.getpid()) > before


def test_an_order_depends_on_its_seed_alone() -> None:
    texts = [str(number) for number in range(100)]
    assert shuffled(texts, 1) == shuffled(texts, 1)
    assert shuffled(texts, 1) != shuffled(texts, 2)
    assert sorted(shuffled(texts, 1)) == sorted(texts)


@needs_wrk
def test_the_generator_counts_answers(server: LiveServer, tmp_path: Path) -> None:
    bodies = write_bodies(tmp_path / "bodies", short_texts(7, 500))
    found = run_load(server.url, bodies, connections=4, duration_s=1)
    assert found.requests > 10
    assert 0 < found.p50_s <= found.p99_s < 1


@needs_wrk
def test_the_generator_accepts_no_errors(server: LiveServer, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies"
    bodies.write_text('{"input": []}\n')
    with pytest.raises(AssertionError, match="error status"):
        run_load(server.url, bodies, connections=1, duration_s=1)


def test_the_speed_that_vecmill_embed_tells_is_read(tmp_path: Path) -> None:
    corpus = Corpus(short_texts(7, 20), tmp_path)
    corpus.write()
    told, whole = corpus.embed("a.npy", "--engine", "fake")
    assert told > whole > 1
    assert told_rate("a.npy: ... in 2.0 s (1,234.5 texts/s, 9 tokens/s).") == 1234.5


def interactive(*latencies_s: float) -> LoadResult:
    """An open loop with these latencies."""
    load, count = BenchLoad("short", 1, rate_hz=10), len(latencies_s)
    times_s = summarise_latencies(latencies_s)
    return LoadResult(load, 20.0, {200: count}, 0.1, times_s, latencies_s)


def test_the_wait_beside_bulk_is_that_of_all_rounds_and_bulk_errors_count() -> None:
    quick = interactive(*[0.01] * 100)
    # The p99 of the first round is 1 s; of all rounds it is 0.03 s.
    slow, steady = interactive(*[0.03] * 98, 1.0, 1.0), interactive(*[0.03] * 100)
    rounds = [
        Round(quick, beside, 50.0, 45.0, 0.02, statuses)
        for beside, statuses in ((slow, [200, 503]), (steady, [200]), (steady, [0]), (steady, [200]))
    ]
    figures = {figure.name: figure for figure in figures_of(rounds)}
    assert figures["more beside bulk, p99 of all rounds, in calls"].median == pytest.approx(1.0)
    assert figures["more beside bulk, p99 of all rounds, in calls"].bound == MOST_CALLS
    assert figures["errors"].median == 2
    assert not figures["errors"].holds
    assert figures["measurements of the generator"].holds
    late = replace(steady, delay_p99_s=1.0)
    refused = figures_of([*rounds, Round(late, steady, 50.0, 45.0, 0.02, [200])])[-1]
    assert not refused.holds


def test_requests_of_several_texts_have_each_text_once() -> None:
    one, three = Load("one"), Load("three", route="/tokenize", texts=3)
    texts = ["a", "b", "c", "d", "e", "f", "g"]
    assert [body["input"] for body in one.bodies(texts)] == texts
    assert [body["inputs"] for body in three.bodies(texts)] == [["a", "b", "c"], ["d", "e", "f"]]


@pytest.mark.linux
def test_processor_times_of_a_process_are_those_of_its_threads() -> None:
    before = read_times([os.getpid()])
    sum(range(5_000_000))
    spent = read_times([os.getpid()]).since(before)
    assert spent.loops[0] > 0.01
    assert spent.others[0] >= 0
