"""The tutorial of `docs/quickstart.md` finds what sentence-transformers finds in one process."""

import json
import pydoc_data.topics
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.reference import load_reference
from support.server import LiveServer
from support.source_tree import ROOT
from vecmill.values.sample_texts import cut_passages

PAGE = ROOT / "docs/quickstart.md"
TUTORIAL = PAGE.read_text("utf-8").partition("\n## Tutorial")[2].partition("\n## ")[0]
WRITTEN_URL = "http://127.0.0.1:7997"
QUESTIONS = (Path(__file__).parent / "rag_questions.txt").read_text("utf-8").splitlines()
NEAR, BEST = 20, 5
FEW_CHUNKS = 50


def run_page(url: str) -> dict[str, Any]:
    """What the page's programs define, after they have run one after the other."""
    programs = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program.replace(WRITTEN_URL, url), PAGE.name, "exec"), names)
    return names


def find_in_process(
    questions: list[str], chunks: list[str], embedder: Any, reranker: Path
) -> tuple[list[list[str]], int]:
    """The best chunks for each question; how many of these lists the vectors alone would have given."""
    judge = load_reference(reranker, "CrossEncoder")
    similarities = embedder.similarity(embedder.encode(questions), embedder.encode(chunks)).numpy()
    found, unchanged = [], 0
    for question, row in zip(questions, similarities, strict=True):
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
    ("is_whole", "questions"),
    [(False, QUESTIONS[::5]), pytest.param(True, QUESTIONS, marks=pytest.mark.full)],
    ids=["part", "whole"],
)
def test_the_five_best_chunks_are_those_of_sentence_transformers(
    is_whole: bool,
    questions: list[str],
    zoo: LiveServer,
    oracle: Any,
    reranker: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    if not is_whole:
        monkeypatch.setattr(pydoc_data.topics, "topics", take_passages())
    page = run_page(zoo.url)
    chunks = page["chunks"]
    assert len(chunks) >= (1_000 if is_whole else FEW_CHUNKS)
    lines = (tmp_path / "corpus.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"_id": str(number), "text": text} for number, text in enumerate(chunks)
    ]
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 50
    expected, unchanged = find_in_process(questions, chunks, oracle, reranker)
    found = [page["find"](question) for question in questions]
    assert found == expected
    assert unchanged < len(questions) / 10, "the reranker decided nothing"
