"""Real processes: they load, check and measure; and what becomes of one that dies or is asked nonsense."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.forked_process import ForkedProcess
from support.tiny_models import save_tiny_bert
from vecmill.commands.optimize import bench as calls
from vecmill.commands.optimize.bench import Worker, WorkerBench, find_engine_capabilities
from vecmill.commands.optimize.measurements import Screening
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.commands.optimize.worker import (
    WorkerSetup,
    load_reference_outputs,
    sample_evenly,
    save_reference_outputs,
)
from vecmill.serving_plan.plans import write_plan
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.sample_texts import sample_texts
from vecmill.verification.model_outputs import CheckInput
from vecmill.verification.reference import StoredReference

SAFE = EnginePlan("onnx", Precision.FP32, "cpu", (1, 2), None, 512)
SMALL = replace(SAFE, max_batch_tokens=64)
PLANTED = EnginePlan("fake", None, "none", (1, 2))
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes are forked: most of their time would be imports."""
    forking = SimpleNamespace(**vars(subprocess) | {"Popen": ForkedProcess})
    monkeypatch.setattr(calls, "subprocess", forking)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> WorkerSetup:
    folder = tmp_path_factory.mktemp("setup")
    texts = folder / "texts.json"
    texts.write_text(json.dumps(sample_texts(60)))
    model = save_tiny_bert(folder / "model")
    return WorkerSetup(str(model), "tiny", None, str(texts), cores=2, cache_dir=str(folder / "cache"))


@pytest.fixture(scope="module")
def bench(setup: WorkerSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerBench]:
    """A bench that measures briefly, with the safe plan loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "THROUGHPUT_S", 0.001)
        patch.setattr(calls, "LATENCY_S", 0.001)
        with closing(WorkerBench(setup, tmp_path_factory.mktemp("bench"), limit_s=PATIENCE_S)) as bench:
            yield bench


@pytest.fixture(scope="module")
def safe(bench: WorkerBench) -> Screening:
    return bench.screen(SAFE)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with closing(Worker()) as worker:
        yield worker


@pytest.fixture
def silent_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A process that answers nothing."""
    monkeypatch.setattr(calls, "COMMAND", (sys.executable, "-c", "input()"))
    with closing(Worker()) as worker:
        yield worker


def load(worker: Worker, setup: WorkerSetup, plan: EnginePlan) -> dict[str, Any]:
    return worker.request("load", timeout_s=PATIENCE_S, setup=asdict(setup), plan=write_plan(plan))


def test_an_engine_is_examined_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "subprocess", subprocess)  # executed, as for users
    assert Precision.FP32 in find_engine_capabilities("onnx").devices["cpu"]


def test_the_bench_loads_checks_and_measures(bench: WorkerBench, safe: Screening) -> None:
    planted = bench.screen(PLANTED)
    assert safe.accuracy.worst_cosine > 0.999999
    assert safe.accuracy.reference == "onnx fp32, each text alone"
    assert safe.load_s > 0
    assert planted.accuracy.worst_cosine < 0.9  # hashes are no rows, and it was seen
    done = bench.run_pass(1, [SMALL, PLANTED])
    assert set(done.speeds) == {SMALL, PLANTED}
    assert done.failures == {}
    for speed in (done.before, done.after, *done.speeds.values()):
        assert speed.texts_per_s > 0
        assert 0 < speed.latency_s < 10


@pytest.mark.usefixtures("safe")
def test_a_plan_that_does_not_load_fails_alone(bench: WorkerBench) -> None:
    impossible = replace(SAFE, precision=Precision.FP16)
    with pytest.raises(CandidateFailed, match="fp16"):
        bench.screen(impossible)
    done = bench.run_pass(1, [impossible, SMALL])
    assert "fp16" in done.failures[impossible]
    assert len(done.speeds) == 1


def test_near_the_end_nobody_is_waited_for_long(setup: WorkerSetup, tmp_path: Path) -> None:
    times = iter((0.0, 0.0, 80.0, 95.0, 300.0))
    with closing(WorkerBench(setup, tmp_path, limit_s=100.0, clock=lambda: next(times))) as bench:
        assert bench._timeout_s(30.0) == 100.0  # without the safe plan there is no result
        bench._safe = SAFE
        assert [bench._timeout_s(30.0) for _ in range(4)] == [30.0, 20.0, 10.0, 10.0]


@pytest.mark.usefixtures("safe")
def test_no_more_processes_live_than_there_is_room_for(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [replace(PLANTED, lane_widths=(width,)) for width in (1, 2)]
    monkeypatch.setattr(bench, "_max_workers", 2)
    for plan in plans:
        bench.screen(plan)
    assert list(bench._workers) == [replace(SAFE, max_batch_tokens=None), plans[1]]
    bench.close()
    assert not bench._workers


def test_a_process_that_dies_says_how(silent_worker: Worker) -> None:
    silent_worker._process.kill()
    with pytest.raises(CandidateFailed, match="was killed by signal 9"):
        silent_worker.request("find_capabilities", timeout_s=PATIENCE_S, engine="onnx")


def test_a_process_that_takes_too_long_is_given_up(silent_worker: Worker) -> None:
    with pytest.raises(CandidateFailed, match="find_capabilities took longer than 0 s"):
        silent_worker.request("find_capabilities", timeout_s=0.0, engine="onnx")


def test_what_goes_wrong_in_a_process_comes_back_as_a_sentence(worker: Worker, setup: WorkerSetup) -> None:
    with pytest.raises(CandidateFailed, match="There is no engine named 'onyx'"):
        worker.request("find_capabilities", timeout_s=PATIENCE_S, engine="onyx")
    with pytest.raises(CandidateFailed, match="no engine is loaded"):
        worker.request("measure", timeout_s=PATIENCE_S, max_batch_tokens=None, texts=1, single_texts=1)
    with pytest.raises(CandidateFailed, match=r"config\.json"):
        load(worker, replace(setup, model=str(Path(setup.model).parent)), SAFE)
    assert load(worker, setup, SAFE)["load_s"] > 0


def test_what_an_engine_prints_does_not_get_among_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import os, runpy, vecmill.engines.fake as fake\n"
        "quiet = fake.FakeEngine.find_capabilities\n"
        "def find_capabilities():\n"
        "    os.system('echo loud')\n"
        "    print('louder')\n"
        "    return quiet()\n"
        "fake.FakeEngine.find_capabilities = find_capabilities\n"
        "runpy.run_module('vecmill.commands.optimize.worker', run_name='__main__')\n"
    )
    monkeypatch.setattr(calls, "COMMAND", (calls.COMMAND[0], str(noisy)))
    assert find_engine_capabilities("fake").devices == {"none": ()}


def test_answers_survive_a_file(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    sparse = SparseEmbedding(np.array([1, 5]), np.array([0.5, 0.25], np.float32))
    questions = (CheckInput("a"), CheckInput("b"))
    save_reference_outputs(StoredReference("ours", questions, (rows, sparse)), tmp_path / "answers.npz")
    kept = load_reference_outputs(tmp_path / "answers.npz", questions)
    assert (kept.name, kept.inputs) == ("ours", questions)
    first, second = kept.outputs
    np.testing.assert_array_equal(first, rows)
    assert isinstance(second, SparseEmbedding)
    np.testing.assert_array_equal(second.columns, sparse.columns)
    np.testing.assert_array_equal(second.values, sparse.values)


@pytest.mark.parametrize("count", [1, 7, 299, 300, 499, 500, 800])
def test_what_is_timed_is_spread_over_all_lengths(count: int) -> None:
    lengths = list(range(500))
    timed = sample_evenly(lengths, count)
    assert len(timed) == len(set(timed)) == min(count, 500)
    assert statistics.mean(timed) == pytest.approx(statistics.mean(lengths), rel=0.01)
