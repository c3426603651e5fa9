"""The measures are trec_eval's, ties included."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
import pytrec_eval

from vecmill.evaluation.exact_search import DocumentOrder, find_best
from vecmill.evaluation.retrieval_measures import NDCG, RECIPROCAL_RANK, measure_rankings, name_recall

DOCUMENTS, QUERIES = 120, 40


def draw_case(seed: int) -> tuple[list[str], npt.NDArray[np.float32], dict[str, dict[str, int]]]:
    """Ids, scores (queries, documents) of few different values, and judgements of several levels."""
    random = np.random.default_rng(seed)
    ids = [f"d{number}" for number in random.permutation(DOCUMENTS)]
    scores = (random.integers(0, 6, (QUERIES, DOCUMENTS)) / 7).astype(np.float32)
    judgements = {}
    for query in range(QUERIES):
        judged = random.choice(DOCUMENTS, random.integers(1, 30), replace=False)
        of_query = {ids[number]: int(random.integers(-1, 4)) for number in judged}
        judgements[f"q{query}"] = {**of_query, ids[judged[0]]: 1, "not in the corpus": 2}
    return ids, scores, judgements


def measure_plainly(judged: Mapping[str, int], ranked: list[str], depth: int) -> dict[str, float]:
    """nDCG@10, MRR@10 and recall by their definitions."""
    gains = [max(0, judged.get(document, 0)) for document in ranked]
    ideal = sorted((max(0, value) for value in judged.values()), reverse=True)

    def discount(values: list[int]) -> float:
        return sum(value / math.log2(place + 2) for place, value in enumerate(values[:10]))

    first = next((place for place, gain in enumerate(gains[:10], 1) if gain > 0), None)
    right = sum(value > 0 for value in judged.values())
    return {
        NDCG: discount(gains) / discount(ideal),
        RECIPROCAL_RANK: 0.0 if first is None else 1 / first,
        name_recall(depth): sum(gain > 0 for gain in gains[:depth]) / right,
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_measures_equal_a_plain_computation_on_rankings_with_ties(seed: int) -> None:
    ids, scores, judgements = draw_case(seed)
    order = DocumentOrder(ids)
    found = find_best(lambda some, block: scores[some, block], order, QUERIES, 20)
    rankings = {f"q{number}": [ids[at] for at in numbers] for number, numbers in enumerate(found)}
    measured = measure_rankings(judgements, rankings, [20])
    for number, (query, judged) in enumerate(judgements.items()):
        by_rule = sorted(
            range(DOCUMENTS), key=lambda at: (scores[number, at], ids[at].encode()), reverse=True
        )
        expected = measure_plainly(judged, [ids[at] for at in by_rule], 20)
        assert {name: values[number] for name, values in measured.items()} == pytest.approx(
            expected, abs=1e-9
        ), query


@pytest.mark.parametrize("seed", range(3))
def test_ties_are_resolved_as_trec_eval_resolves_them(seed: int) -> None:
    ids, scores, judgements = draw_case(seed)
    found = find_best(lambda some, block: scores[some, block], DocumentOrder(ids), QUERIES, 20)
    rankings = {f"q{number}": [ids[at] for at in numbers] for number, numbers in enumerate(found)}
    measured = measure_rankings(judgements, rankings, [20])
    runs = {
        f"q{number}": {document: float(score) for document, score in zip(ids, row, strict=True)}
        for number, row in enumerate(scores)
    }
    kept = {query: {at: max(0, value) for at, value in of.items()} for query, of in judgements.items()}
    judge = pytrec_eval.RelevanceEvaluator(kept, {"ndcg_cut.10", "recall.20"})
    expected = judge.evaluate(runs)
    for number, query in enumerate(judgements):
        assert measured[NDCG][number] == pytest.approx(expected[query]["ndcg_cut_10"], abs=1e-9)
        assert measured[name_recall(20)][number] == pytest.approx(expected[query]["recall_20"], abs=1e-9)


def test_a_query_that_finds_nothing_counts_as_zero() -> None:
    measured = measure_rankings({"a": {"x": 1}, "b": {"x": 1}}, {"a": ["x"]}, [5])
    assert {name: values.tolist() for name, values in measured.items()} == {
        NDCG: [1.0, 0.0],
        RECIPROCAL_RANK: [1.0, 0.0],
        "recall@5": [1.0, 0.0],
    }
