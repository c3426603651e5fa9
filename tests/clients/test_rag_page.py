"""The pipeline of `docs/rag.md` finds what sentence-transformers finds in one process, chunk for chunk."""

import pydoc_data.topics
import random
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import LiveServer
from support.source_tree import ROOT

PAGE = ROOT / "docs/rag.md"
WRITTEN_URL = "http://127.0.0.1:7997"
QUESTIONS = (Path(__file__).parent / "rag_questions.txt").read_text("utf-8").splitlines()
NEAR, BEST = 20, 5


def run_page(url: str) -> dict[str, Any]:
    """What the page's program defines, after it has run."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program.replace(WRITTEN_URL, url), PAGE.name, "exec"), names)
    return names


def find_in_process(
    questions: list[str], chunks: list[str], embedder: Any, reranker: Path
) -> tuple[list[list[str]], int]:
    """The best chunks for each question; how many of these lists the vectors alone would have given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        from sentence_transformers import CrossEncoder

        judge = CrossEncoder(str(reranker), device="cpu")
    similarities = embedder.similarity(embedder.encode(questions), embedder.encode(chunks)).numpy()
    found, unchanged = [], 0
    for question, row in zip(questions, similarities, strict=True):
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


@pytest.mark.parametrize(
    ("part", "questions"),
    [(20, QUESTIONS[::5]), pytest.param(1, QUESTIONS, marks=pytest.mark.full)],
    ids=["a twentieth", "whole"],
)
def test_the_five_best_chunks_are_those_of_sentence_transformers(
    part: int,
    questions: list[str],
    zoo: LiveServer,
    oracle: Any,
    reranker: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pydoc_data.topics, "topics", take_topics(1.3 / part))
    page = run_page(zoo.url)
    chunks = page["chunks"]
    assert len(chunks) >= 1_000 / part
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 50
    expected, unchanged = find_in_process(questions, chunks, oracle, reranker)
    found = [page["find"](question) for question in questions]
    assert found == expected
    assert unchanged < len(questions) / 10, "the reranker decided nothing"
