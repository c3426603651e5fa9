"""Measures of rankings for each query, by ir_measures: nDCG, recall and reciprocal rank."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecmill.errors import MissingExtra
from vecmill.evaluation.labelled_texts import Judgements
from vecmill.values.messages import pip_command

NDCG, RECIPROCAL_RANK = "nDCG@10", "MRR@10"
RANKED = 10  # of both

Values = npt.NDArray[np.float64]


def name_recall(depth: int) -> str:
    """Return the name of the recall of the first `depth` documents."""
    return f"recall@{depth}"


def measure_rankings(
    judgements: Judgements, rankings: Mapping[str, Sequence[str]], recall_at: Sequence[int]
) -> dict[str, Values]:
    """Return the values (queries,) of each measure, in the order of `judgements`.

    `rankings` are the ids of the documents that each query found, the best first, each once. Raises
    `MissingExtra` without ir_measures.
    """
    library = import_measures()
    wanted = {
        library.nDCG @ RANKED: NDCG,
        library.RR @ RANKED: RECIPROCAL_RANK,
        **{library.R @ depth: name_recall(depth) for depth in recall_at},
    }
    # Scores that differ: ties have been resolved, and not each measure of the library has the same rule.
    run = {
        query: {document: float(-place) for place, document in enumerate(rankings.get(query, ()))}
        for query in judgements
    }
    # trec_eval knows no relevance below 0.
    judged = {
        query: {document: max(0, value) for document, value in of_query.items()}
        for query, of_query in judgements.items()
    }
    numbers = {query: number for number, query in enumerate(judgements)}
    values = {name: np.zeros(len(numbers)) for name in wanted.values()}
    for found in library.iter_calc(list(wanted), judged, run):
        values[wanted[found.measure]][numbers[found.query_id]] = found.value
    return values


def import_measures() -> Any:
    """Import and return ir_measures. Raises `MissingExtra`."""
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtra(
            f"Measures of retrieval need ir_measures: {pip_command('install', 'vecmill[evaluate]')}."
        ) from error
    return ir_measures
