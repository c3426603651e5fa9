"""The pipeline of `docs/rag.md` finds what sentence-transformers finds in one process, chunk for chunk."""

import pydoc_data.topics
import random
import re
import warnings
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

PAGE = ROOT / "docs/rag.md"
WRITTEN_URL = "http://127.0.0.1:7997"
QUESTIONS = (Path(__file__).parent / "questions.txt").read_text("utf-8").splitlines()
NEAR, BEST = 20, 5


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        from sentence_transformers import CrossEncoder

        judge = CrossEncoder(str(reranker), device="cpu")
    embedder = load_reference(locate_model().directory)
    similarities = embedder.similarity(embedder.encode(QUESTIONS), embedder.encode(chunks)).numpy()
    found, unchanged = [], 0
    for question, row in zip(QUESTIONS, similarities, strict=True):
        near = [chunks[place] for place in np.argsort(-row, kind="stable")[:NEAR]]
        ranked = judge.rank(question, near, top_k=BEST)
        found.append([near[entry["corpus_id"]] for entry in ranked])
        unchanged += found[-1] == near[:BEST]
    return found, unchanged


def take_topics(share: float) -> dict[str, str]:
    """A share of the manual in whole topics. Each release of Python orders and writes it differently."""
    topics = pydoc_data.topics.topics
    names = random.Random(3).sample(sorted(topics), len(topics))
    wanted, taken = share * sum(map(len, topics.values())), dict[str, str]()
    for name in names:
        if sum(map(len, taken.values())) < wanted:
            taken[name] = topics[name]
    return taken


@pytest.mark.parametrize("part", [20, pytest.param(1, marks=pytest.mark.full)], ids=["a twentieth", "whole"])
def test_the_five_best_chunks_are_those_of_sentence_transformers(
    part: int, both: LiveServer, reranker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pydoc_data.topics, "topics", take_topics(1.3 / part))
    page = run_page(both.url)
    chunks = page["chunks"]
    assert len(chunks) >= 1_000 / part
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 50
    expected, unchanged = find_in_process(chunks, reranker)
    found = [page["find"](question) for question in QUESTIONS]
    assert found == expected
    assert unchanged < 5, "the reranker decided nothing"
