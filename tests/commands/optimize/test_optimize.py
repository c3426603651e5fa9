"""`vecmill optimize` from end to end, on a tiny model and real engines, and what serves its directory."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner, Result

from support.forked_process import ForkedProcess
from support.http_server import QUIET, build_service, run_in_thread
from support.texts import mixed_texts
from support.tiny_models import save_tiny_bert
from vecmill.commands.main import main
from vecmill.commands.optimize import bench
from vecmill.commands.optimize import run as command
from vecmill.commands.optimize.candidates import SearchSpace, list_candidates
from vecmill.commands.optimize.output_directory import describe_result
from vecmill.commands.optimize.progress import DONE, TOO_NOISY
from vecmill.commands.optimize.run import Interrupted, OptimizeOptions, optimize_model
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.commands.optimize.worker import FEWEST_CHECKED, RequestHandler
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.base import EngineCapabilities
from vecmill.mill import Mill
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan, Precision

# As many texts as the accuracy is measured over on any machine, however slow.
TEXTS = mixed_texts(7, FEWEST_CHECKED)
LIMIT_S = 2.0
PLANTED = EnginePlan("fake", None, "none", (1, 2), None, 512)


@pytest.fixture(scope="module", autouse=True)
def short_measurements() -> Iterator[None]:
    """Measure over the fewest texts, in forked processes: how fast a plan is matters to no test here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": ForkedProcess}))
        patch.setattr(bench, "THROUGHPUT_S", 0.001)
        patch.setattr(bench, "LATENCY_S", 0.001)
        yield


class WorkerHere:
    """A worker in this process. One of its own would take longer to start than to do its work."""

    def __init__(self) -> None:
        self._handler = RequestHandler()

    def request(self, action: str, *, timeout_s: float, **details: Any) -> dict[str, Any]:
        request = json.loads(json.dumps({"do": action, **details}))
        answer = self._handler.answer(request)
        if "error" in answer:
            raise CandidateFailed(answer["error"])
        return dict(answer)

    def close(self) -> None:
        self._handler = RequestHandler()


@pytest.fixture
def planted_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates are those of `with_planted`, without processes and pictures."""
    monkeypatch.setattr(command, "can_plot", lambda: False)
    monkeypatch.setattr(command, "find_search_space", with_planted)
    for module in (bench, command):
        monkeypatch.setattr(module, "Worker", WorkerHere)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("model") / "tiny-bert")


@pytest.fixture(scope="module")
def directory(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes."""
    folder = tmp_path_factory.mktemp("optimised")
    texts = folder / "texts"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    result = optimize(
        model, folder / "out", "--texts", str(texts), "--time-limit-s", str(LIMIT_S), cache=folder / "cache"
    )
    assert result.exit_code in (DONE, TOO_NOISY), result.output
    assert "vecmill serve" in result.output
    return folder / "out"


def optimize(model: Path, out: Path, *arguments: str, cache: Path) -> Result:
    options = ["-o", str(out), "--engine", "onnx", "--cache-dir", str(cache), *arguments]
    return CliRunner().invoke(main, ["optimize", str(model), *options])


def with_planted(engines: list[str], cores: int) -> SearchSpace:
    """The ONNX engine in fp32, and one that is very fast and gives hashes."""
    space = list_candidates({"onnx": EngineCapabilities({"cpu": (Precision.FP32,)})}, cores=cores)
    first, *others = space.variants[space.kinds[0]]
    return SearchSpace((PLANTED, first), {first: (first, *others[:1]), PLANTED: (PLANTED,)}, {})


def test_the_report_has_the_choice_and_every_plan(directory: Path) -> None:
    page = (directory / "report.md").read_text(encoding="utf-8")
    manifest = json.loads((directory / "vecmill.json").read_text())
    assert page.startswith("# tiny-bert, optimised")
    assert "onnx fp32, calls on" in page
    rows = [line for line in page.splitlines() if line.startswith("| onnx")]
    assert len(rows) == len(manifest["candidates"])
    assert f"{len(TEXTS)} texts" in page
    assert manifest["versions"]["onnxruntime"] in page


def test_serving_needs_nothing_but_the_directory(directory: Path, model: Path, tmp_path: Path) -> None:
    async def rows(served: Path) -> np.ndarray:
        async with Mill(served, MillConfig(cache_dir=tmp_path / "cache")) as mill:
            return await mill.embed(TEXTS)

    np.testing.assert_allclose(asyncio.run(rows(directory)), asyncio.run(rows(model)), atol=1e-4)
    # The second prepared the model; the first had no need to.
    assert len(list((tmp_path / "cache").rglob("model.onnx"))) == 1


def test_the_server_tells_engine_precision_and_accuracy(
    directory: Path, model: Path, kept_models: Path
) -> None:
    plan = json.loads((directory / "vecmill.json").read_text())["plan"]
    plain = replace(describe_model(locate_model(model)), name="plain")
    served = [(describe_model(locate_model(directory)), None), (plain, None)]
    service = build_service(QUIET, served, config=MillConfig(cache_dir=kept_models))
    with run_in_thread(service) as (port, _):
        entry, unoptimised = httpx.get(f"http://127.0.0.1:{port}/models").json()["data"]
    assert entry["id"] == "tiny-bert"
    assert (entry["engine"], entry["precision"]) == (plan["engine"], plan["precision"])
    assert entry["accuracy"]["reference"] == "onnx fp32, each text alone"
    assert entry["accuracy"]["cosine_min"] >= 0.999
    assert entry["accuracy"]["texts"] == len(TEXTS)
    assert (unoptimised["engine"], unoptimised["accuracy"]) == ("onnx", None)


@pytest.mark.usefixtures("planted_engine")
def test_a_planted_engine_is_refused_however_fast(model: Path, tmp_path: Path) -> None:
    optimize_options = OptimizeOptions(
        str(model), tmp_path / "out", texts=TEXTS, time_limit_s=LIMIT_S, cache_dir=tmp_path / "cache"
    )
    optimization_result = optimize_model(optimize_options)
    assert optimization_result.choice.plan.engine == "onnx"
    planted = next(
        entry
        for entry in describe_result(optimization_result)["candidates"]
        if entry["plan"]["engine"] == "fake"
    )
    assert planted["accuracy"]["cosine_min"] < 0.9
    assert len(planted["ratios"]) == 1
    assert "refused: the cosine of its worst text" in (tmp_path / "out/report.md").read_text()


@pytest.mark.usefixtures("planted_engine")
def test_an_interrupted_run_goes_on_with_what_it_has_while_it_measures_and_while_it_writes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimize_options = OptimizeOptions(
        str(model), tmp_path / "out", texts=TEXTS, time_limit_s=600.0, cache_dir=tmp_path / "cache"
    )

    def interrupt(step: str) -> None:
        if step.startswith("pass 2"):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        optimize_model(optimize_options, interrupt)
    assert "interrupted" in (tmp_path / "out/report.md").read_text()
    assert not (tmp_path / "out/vecmill.json").exists()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    steps: list[str] = []
    optimize_options = replace(optimize_options, time_limit_s=LIMIT_S)
    with monkeypatch.context() as patched:
        patched.setattr(command, "_prepare", stop)
        with pytest.raises(Interrupted):
            optimize_model(optimize_options, steps.append)
    assert "continuing an earlier run (passes: 1)" in steps
    assert not (tmp_path / "out/vecmill.json").exists()

    steps.clear()
    optimize_model(optimize_options, steps.append)
    assert any(step.startswith("continuing an earlier run") for step in steps)
    assert "interrupted" not in (tmp_path / "out/report.md").read_text()
    assert (tmp_path / "out/vecmill.json").exists()
    assert locate_model(tmp_path / "out").name == "tiny-bert"


def test_the_command_says_how_to_go_on(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("vecmill.commands.optimize.progress.optimize_model", interrupt)
    result = optimize(model, tmp_path / "out", cache=tmp_path / "cache")
    assert result.exit_code == 130
    assert "continues" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "onyx"], "There is no engine named 'onyx'"),
        (["--min-cosine", "1.1"], "--min-cosine"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_status_2(
    model: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = optimize(model, tmp_path / "out", *arguments, cache=tmp_path / "cache")
    assert result.exit_code == 2
    assert said in result.output


def test_too_few_texts_are_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("one\ntwo\ntwo\n")
    result = optimize(model, tmp_path / "out", "--texts", str(tmp_path / "texts"), cache=tmp_path / "cache")
    assert result.exit_code == 2
    assert "--texts has 2 different texts" in result.output
