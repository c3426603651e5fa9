"""The page and the pictures: every plan, why it was chosen or not, and what the figures rest on."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.landscape import InventedMachine, space_of
from vecmill.plan import EnginePlan
from vecmill.tuning import plots
from vecmill.tuning.artefact import Findings
from vecmill.tuning.choice import Demand, choose
from vecmill.tuning.figures import Accuracy, kind_of
from vecmill.tuning.machine import Machine
from vecmill.tuning.report import write_report
from vecmill.tuning.search import Search, describe_plan

DEMAND = Demand()


@pytest.fixture(scope="module")
def findings() -> Findings:
    space = space_of()
    failing = {kind_of(plan): "no such | instruction\nhere" for plan in space.kinds if plan.engine == "torch"}
    machine = InventedMachine(space, 0, failing=failing)
    ledger = Search(space, machine, DEMAND, limit_s=300.0, clock=machine.now).run()
    return Findings(
        model="owner/name",
        model_fingerprint="0123",
        machine=Machine("x86_64-1", "A Processor", 2, "Linux"),
        versions={"vecmill": "1.2.3"},
        demand=DEMAND,
        ledger=ledger,
        choice=choose(ledger, DEMAND),
        left_out={"neuron": "not installed: pip install 'vecmill[neuron]'"},
        texts=500,
    )


def test_every_plan_is_in_the_table_with_its_fate(findings: Findings) -> None:
    page = write_report(findings, [])
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == len(findings.ledger.plans) + 2
    assert len({row.count("|") for row in rows}) == 1
    assert "chosen" in rows[2]
    assert describe_plan(findings.choice.plan) in rows[2]
    assert any("the safe plan" in row for row in rows)
    assert any("refused: the cosine of its worst text" in row for row in rows)
    assert any("failed: no such / instruction here" in row for row in rows)


def test_the_circumstances_are_told(findings: Findings) -> None:
    page = write_report(findings, [])
    for told in ("A Processor, 2 cores", "vecmill 1.2.3", "`0123`", "neuron: not installed", "0.999"):
        assert told in page


def test_an_interrupted_run_says_so(findings: Findings) -> None:
    assert "interrupted" in write_report(findings, [], is_interrupted=True)
    assert "interrupted" not in write_report(findings, [])


def test_scores_have_no_cosines(findings: Findings) -> None:
    ledger = replace(findings.ledger, admissions=dict(findings.ledger.admissions))
    scores = Accuracy("onnx fp32", 100, 0.0123, 1.0, None, None, 0.98)
    for plan, admission in ledger.admissions.items():
        ledger.admissions[plan] = replace(admission, accuracy=scores)
    page = write_report(replace(findings, ledger=ledger), [])
    assert "No score is off by more than 1.2e-02, and 0.980 of the decisions are the same" in page


def test_without_matplotlib_the_page_says_what_it_needs(findings: Findings) -> None:
    assert "vecmill[optimize]" in write_report(findings, [])


def test_the_plots_are_pictures_that_the_page_shows(findings: Findings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plots.can_plot()
    pictures = plots.draw_plots(findings.ledger, findings.demand, findings.choice, tmp_path)
    page = write_report(findings, pictures)
    assert len(pictures) == 2
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"]({picture.name})" in page


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (EnginePlan("onnx"), "onnx"),
        (space_of().kinds[0], "onnx fp32, calls on 1 or 2 cores, 512 tokens"),
        (EnginePlan("onnx", None, "cuda", (1,), 8), "onnx on cuda, calls on 1 core, lengths in 8s"),
    ],
)
def test_plans_in_words(plan: EnginePlan, words: str) -> None:
    assert describe_plan(plan) == words
