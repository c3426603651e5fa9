"""A corpus of 100,000 texts keeps little more than its vectors; 10,000 texts are compared by one command."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import evaluate
from vecmill.commands import main as cli
from vecmill.values.aliases import FloatArray

DIM = 64


def embed(texts: Sequence[str], side: str) -> FloatArray:
    """A vector of each text, which begins with its number."""
    numbers = np.array([int(text.partition(" ")[0]) for text in texts])
    return np.stack([np.cos(numbers * (step + 1) * 0.7) for step in range(DIM)], axis=1).astype(np.float32)


def write_corpus(folder: Path, count: int) -> tuple[Path, Path, Path]:
    """Documents of a kilobyte each, of which each query asks for one."""
    queries, qrels, corpus = (folder / name for name in ("queries.tsv", "qrels.tsv", "corpus.jsonl"))
    with corpus.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps({"_id": f"d{number}", "text": f"{number} {'x' * 1_000}"}) + "\n")
    queries.write_text("".join(f"q{number}\t{number} ?\n" for number in range(0, count, 997)), "utf-8")
    qrels.write_text("".join(f"q{number}\td{number}\t1\n" for number in range(0, count, 997)), "utf-8")
    return queries, qrels, corpus


@pytest.mark.full
def test_a_large_corpus_keeps_little_more_than_its_vectors(tmp_path: Path) -> None:
    count = 100_000
    files = write_corpus(tmp_path, count)
    tracemalloc.start()
    try:
        row = evaluate(embed, *files, recall_at=[10]).rows[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert row.ndcg.mean > 0.9
    # Vectors, and their copies of length 1; ids; a block of scores with its keys. The texts have 100 MB.
    assert peak < 2 * count * DIM * 4 + 200 * count + 40e6


@pytest.mark.full
def test_ten_thousand_texts_are_compared_by_one_command(tmp_path: Path) -> None:
    models = [save_tiny_bert(tmp_path / f"tiny{seed}", TinyBert(seed=seed)) for seed in (1, 2)]
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"text number {number} of many\n" for number in range(10_000)), "utf-8")
    command = ["compare", *map(str, models), "--texts", str(texts), "--json"]
    done = CliRunner().invoke(cli.main, command, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["texts"] == 10_000
    assert set(found["overlaps"]) == {"1", "10", "100"}
    assert -1 <= found["rank_correlation"]["low"] <= found["rank_correlation"]["high"] <= 1
