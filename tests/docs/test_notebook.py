"""docs/search.ipynb runs from top to bottom, and a part of it again after documents have changed."""

import json
import pydoc_data.topics
from pathlib import Path
from typing import Any

import pytest

from support.source_tree import ROOT
from support.task_models import save_task_model

NOTEBOOK = json.loads((ROOT / "docs/search.ipynb").read_text("utf-8"))
PROGRAMS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
DOCUMENTS, STORE, SEARCH, RERANK, EVALUATE = range(len(PROGRAMS))
RERANKER = "cross-encoder/ms-marco-MiniLM-L6-v2"
TOPICS = ("with", "lambda", "function", "comparisons", "integers", "pass")
MOST_LINES = 40


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The names of the notebook, in a new folder, with a part of the manual and a tiny reranker."""
    topics = {name: pydoc_data.topics.topics[name][:1_500] for name in TOPICS}
    monkeypatch.setattr(pydoc_data.topics, "topics", topics)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {
        "RERANKER_OF_TEST": str(
            save_task_model(tmp_path / "reranker", "BertForSequenceClassification", num_labels=1)
        )
    }
    yield found
    for name in ("mill", "reranker", "store"):
        if name in found:
            found[name].close()


def run(number: int, names: dict[str, Any]) -> None:
    program = PROGRAMS[number].replace(f'"{RERANKER}"', "RERANKER_OF_TEST")
    exec(compile(program, f"cell {number + 1}", "exec"), names)


def test_the_notebook_is_short_and_has_no_outputs() -> None:
    assert NOTEBOOK["nbformat"] == 4
    lines = [line for program in PROGRAMS for line in program.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    for cell in NOTEBOOK["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_every_cell_runs_and_finds_what_was_asked_for(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(DOCUMENTS, names)
    run(STORE, names)
    assert names["done"].embedded == len(TOPICS)
    run(SEARCH, names)
    chunks = names["store"].count("documents").count
    assert chunks > len(TOPICS)
    (name, text), *others = names["search"](names["QUESTION"], 5)
    assert name == "with.txt"
    assert "exception" in text
    assert len(others) == 4
    run(RERANK, names)
    assert len(names["scores"]) == len(names["found"]) == min(20, chunks)
    run(EVALUATE, names)
    report = names["report"]
    assert len(report.rows) == 3  # all dimensions, with the reranker and without, and fewer
    assert report.rows[0].ndcg.mean > 0.6
    assert "nDCG@10" in capsys.readouterr().out


def test_the_cell_of_the_store_embeds_what_has_changed_alone(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: f"The statement {name} has a page." for name in ("pass", "with")}
    monkeypatch.setattr(pydoc_data.topics, "topics", texts)
    run(DOCUMENTS, names)
    run(STORE, names)
    everything = names["done"].embedded
    (Path("documents") / "pass.txt").write_text("The statement pass does nothing.", "utf-8")
    run(STORE, names)
    assert 1 == names["done"].embedded < everything
