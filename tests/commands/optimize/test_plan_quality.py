"""The quality of plans on labelled texts, in a process for each kind."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from support.drawn_labels import write_labels
from support.forked_process import run_process
from support.tiny_models import save_tiny_bert
from vecmill.commands.optimize import plan_quality
from vecmill.commands.optimize.measurements import Measurements, Screening
from vecmill.commands.optimize.plan_quality import LabelFiles, find_quality, measure_qualities
from vecmill.errors import InvalidCorpus, SetupError
from vecmill.evaluation.quality import evaluate
from vecmill.serving_plan.plans import Accuracy
from vecmill.values.engine_plan import EnginePlan, Precision

SAFE = EnginePlan("onnx", Precision.FP32, max_batch_tokens=512)
OTHER, BROKEN = EnginePlan("fake"), EnginePlan("no-engine")
SCREENING = Screening(1.0, None, Accuracy("", 1, 0.0, 1.0, 1.0, 1.0, None))


@pytest.fixture(autouse=True)
def forked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes are forked: most of their time would be imports."""
    forking = SimpleNamespace(run=lambda line, **_: run_process(line))
    monkeypatch.setattr(plan_quality, "subprocess", forking)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> LabelFiles:
    return LabelFiles(*write_labels(tmp_path_factory.mktemp("labels")))


def test_each_kind_is_evaluated_once(files: LabelFiles, tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path / "tiny")
    measured = Measurements(
        SAFE, dict.fromkeys((SAFE, EnginePlan("onnx", Precision.FP32), OTHER, BROKEN), SCREENING)
    )
    steps: list[str] = []
    found = measure_qualities(measured, files, str(model), str(tmp_path / "cache"), steps.append)
    assert [step.partition(" ")[0] for step in steps] == ["onnx:fp32:", "fake:", "no-engine:"]
    assert len(found) == 2
    safe, other = find_quality(found, SAFE), find_quality(found, OTHER)
    assert safe is not None
    assert other is not None
    assert (safe.queries, safe.p_value) == (12, None)
    expected = evaluate(model, files.queries, files.qrels, files.corpus, plans=["onnx:fp32", "fake"]).rows
    assert [safe.ndcg, other.ndcg] == [row.ndcg for row in expected]
    assert other.p_value == expected[1].p_value
    assert find_quality(found, BROKEN) is None


def test_a_safe_plan_that_fails_ends_the_run(files: LabelFiles, tmp_path: Path) -> None:
    measured = Measurements(BROKEN)
    with pytest.raises(SetupError, match="The safe plan, no-engine, cannot be evaluated: "):
        measure_qualities(
            measured, files, str(save_tiny_bert(tmp_path / "tiny")), str(tmp_path), lambda _: None
        )


def test_wrong_files_are_told_before_anything_is_measured(files: LabelFiles, tmp_path: Path) -> None:
    files.check()
    (tmp_path / "pairs.tsv").write_text("only a query", "utf-8")
    with pytest.raises(InvalidCorpus, match="line 1 must be a query and its right text"):
        LabelFiles(pairs=tmp_path / "pairs.tsv").check()
