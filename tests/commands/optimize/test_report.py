"""The page and the pictures: every plan, why it was chosen or not, and what the figures rest on."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.landscape import InventedMachine, search_space_of
from vecmill.commands.optimize import report
from vecmill.commands.optimize.choice import Goal, choose
from vecmill.commands.optimize.output_directory import OptimizationResult
from vecmill.commands.optimize.plan_quality import PlanQuality
from vecmill.commands.optimize.report import write_report
from vecmill.commands.optimize.search import Search
from vecmill.evaluation.significance import Estimate
from vecmill.serving_plan.manifest import Machine
from vecmill.serving_plan.plans import Accuracy, describe_plan, kind_of
from vecmill.values.engine_plan import EnginePlan

DEMAND = Goal()


@pytest.fixture(scope="module")
def result() -> OptimizationResult:
    space = search_space_of()
    failing = {kind_of(plan): "no such | instruction\nhere" for plan in space.kinds if plan.engine == "torch"}
    machine = InventedMachine(space, 0, failing=failing)
    measured = Search(space, machine, DEMAND, limit_s=300.0, clock=machine.now).run()
    return OptimizationResult(
        model="owner/name",
        model_fingerprint="0123",
        machine=Machine("x86_64-1", "A Processor", 2, "Linux"),
        versions={"vecmill": "1.2.3"},
        goal=DEMAND,
        measured=measured,
        choice=choose(measured, DEMAND),
        left_out={"neuron": "not installed: pip install 'vecmill[neuron]'"},
        texts=500,
    )


def test_every_plan_is_in_the_table_with_its_fate(result: OptimizationResult) -> None:
    page = write_report(result, [])
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == len(result.measured.plans) + 2
    assert len({row.count("|") for row in rows}) == 1
    assert "chosen" in rows[2]
    assert describe_plan(result.choice.plan) in rows[2]
    assert any("the safe plan" in row for row in rows)
    assert any("refused: the cosine of its worst text" in row for row in rows)
    assert any("failed: no such / instruction here" in row for row in rows)


def test_the_circumstances_are_told(result: OptimizationResult) -> None:
    page = write_report(result, [])
    for told in ("A Processor, 2 cores", "vecmill 1.2.3", "`0123`", "neuron: not installed", "0.999"):
        assert told in page


def test_the_quality_on_labelled_texts_stands_beside_the_cosine(result: OptimizationResult) -> None:
    safe = kind_of(result.measured.safe)
    other = next(kind_of(plan) for plan in result.measured.plans if kind_of(plan) != safe)
    qualities = {
        safe: PlanQuality(Estimate(0.81, 0.79, 0.83), 400, None),
        other: PlanQuality(Estimate(0.8, 0.78, 0.82), 400, 0.0312),
    }
    page = write_report(replace(result, qualities=qualities), [])
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len({row.count("|") for row in rows}) == 1
    assert any("0.8000 (0.7800 to 0.8200) | 0.0312 |" in row for row in rows)
    assert "400 labelled queries" in page
    assert "nDCG" not in write_report(result, [])


def test_an_interrupted_run_says_so(result: OptimizationResult) -> None:
    assert "interrupted" in write_report(result, [], is_interrupted=True)
    assert "interrupted" not in write_report(result, [])


def test_scores_have_no_cosines(result: OptimizationResult) -> None:
    measured = replace(result.measured, screenings=dict(result.measured.screenings))
    scores = Accuracy("onnx fp32", 100, 0.0123, 1.0, None, None, 0.98)
    for plan, screening in measured.screenings.items():
        measured.screenings[plan] = replace(screening, accuracy=scores)
    page = write_report(replace(result, measured=measured), [])
    assert "The largest difference of a score is 1.2e-02, and 0.980 of the decisions are the same" in page


def test_without_matplotlib_the_page_says_what_it_needs(result: OptimizationResult) -> None:
    assert "vecmill[optimize]" in write_report(result, [])


def test_the_plots_are_pictures_that_the_page_shows(result: OptimizationResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert report.can_plot()
    pictures = report.draw_plots(result.measured, result.goal, result.choice, tmp_path)
    page = write_report(result, pictures)
    assert len(pictures) == 2
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"]({picture.name})" in page


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (EnginePlan("onnx"), "onnx"),
        (search_space_of().kinds[0], "onnx fp32, calls on 1 or 2 cores, 512 tokens"),
        (EnginePlan("onnx", None, "cuda", (1,), 8), "onnx on cuda, calls on 1 core, lengths in 8s"),
    ],
)
def test_plans_in_words(plan: EnginePlan, words: str) -> None:
    assert describe_plan(plan) == words
