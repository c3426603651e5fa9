"""The pipeline of `docs/rag.md` finds what sentence-transformers finds in one process, chunk for chunk."""

import pydoc_data.topics
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.reference import load_reference
from support.server import LiveServer, live_server
from support.source_tree import ROOT
from support.task_models import save_task_model
from vecmill.models import locate_model
from vecmill.values.sample_texts import cut_passages

PAGE = ROOT / "docs/rag.md"
WRITTEN_URL = "http://127.0.0.1:7997"
QUESTIONS = (Path(__file__).parent / "questions.txt").read_text("utf-8").splitlines()
NEAR, BEST = 20, 5
FEW_CHUNKS = 50


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder, whose order is not that of the embedded model."""
    folder = tmp_path_factory.mktemp("models") / "reranker"
    return save_task_model(folder, "BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="module")
def both(reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The embedded model and the cross-encoder behind one URL."""
    folder = tmp_path_factory.mktemp("both")
    with live_server(folder, arguments=["all-MiniLM-L6-v2", str(reranker)]) as server:
        yield server


def run_page(url: str) -> dict[str, Any]:
    """What the page's program defines, after it has run."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program.replace(WRITTEN_URL, url), PAGE.name, "exec"), names)
    return names


def find_in_process(chunks: list[str], reranker: Path) -> tuple[list[list[str]], int]:
    """The best chunks for each question; how many of these lists the vectors alone would have given."""
    judge, embedder = load_reference(reranker, "CrossEncoder"), load_reference(locate_model().directory)
    similarities = embedder.similarity(embedder.encode(QUESTIONS), embedder.encode(chunks)).numpy()
    found, unchanged = [], 0
    for question, row in zip(QUESTIONS, similarities, strict=True):
        near = [chunks[place] for place in np.argsort(-row, kind="stable")[:NEAR]]
        ranked = judge.rank(question, near, top_k=BEST)
        found.append([near[entry["corpus_id"]] for entry in ranked])
        unchanged += found[-1] == near[:BEST]
    return found, unchanged


def take_passages() -> dict[str, str]:
    """A part of the manual, which is the same for every release of Python."""
    passages = cut_passages(3, FEW_CHUNKS, lambda chance: chance.randint(8, 50))
    return {"passages": "\n\n".join(passages)}


@pytest.mark.parametrize(
    "is_whole", [False, pytest.param(True, marks=pytest.mark.full)], ids=["part", "whole"]
)
def test_the_five_best_chunks_are_those_of_sentence_transformers(
    is_whole: bool, both: LiveServer, reranker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_whole:
        monkeypatch.setattr(pydoc_data.topics, "topics", take_passages())
    page = run_page(both.url)
    chunks = page["chunks"]
    assert len(chunks) >= (1_000 if is_whole else FEW_CHUNKS)
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 50
    expected, unchanged = find_in_process(chunks, reranker)
    found = [page["find"](question) for question in QUESTIONS]
    assert found == expected
    assert unchanged < 5, "the reranker decided nothing"
