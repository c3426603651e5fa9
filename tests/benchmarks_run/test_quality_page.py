"""The page of `make quality`: what it says follows from the figures, and it is the one that is published."""

import json

import numpy as np
import pytest

from bench.quality import PAGE, RESULTS, turn
from bench.quality_tables import describe_changes, write_page


def test_the_page_is_that_of_the_published_figures() -> None:
    assert PAGE.read_text("utf-8") == write_page(json.loads(RESULTS.read_text("utf-8"))), "run `make quality`"


def test_the_largest_change_is_named() -> None:
    def row(plan: str, ndcg: float, p: float | None, cosine: float | None) -> dict[str, object]:
        found = {"plan": plan, "dimensions": None, "dtype": "float", "ndcg": [ndcg, 0, 1], "p": p}
        return {**found, "cosine_min": cosine}

    rows = [
        row("onnx fp32", 0.8, None, None),
        row("onnx int8", 0.79, 0.03, 0.995),
        row("a", 0.801, 0.9, 0.999),
    ]
    told = describe_changes({"minilm": {"sets": {"man": rows}}})
    assert "Over 2 pairs" in told
    assert "at most 0.0100 (all-MiniLM-L6-v2, onnx int8, man), and 1 of the changes has" in told
    assert "The lowest cosine among them is 0.9950." in told


@pytest.mark.parametrize("cosine", [0.9992, 0.95])
def test_vectors_are_turned_to_the_cosine(cosine: float) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((50, 64), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = turn(vectors, cosine, random)
    assert np.linalg.norm(turned, axis=1) == pytest.approx(1, abs=1e-5)
    assert (turned * vectors).sum(axis=1) == pytest.approx(cosine, abs=1e-5)
