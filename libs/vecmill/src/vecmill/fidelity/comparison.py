"""Comparing answers with a reference's: how far off they are, and what they lead to.

Rows are compared by differences, cosines and the neighbours that are kept; scores by differences and by the
decisions that are kept: the best documents of a query, the best label of a text or a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from vecmill.fidelity.answers import Answers
from vecmill.fidelity.questions import Questions
from vecmill.models import Task
from vecmill.reading import Purpose
from vecmill.rows import dense, normalize_rows
from vecmill.scores import cosine_at, max_similarity
from vecmill.types import FloatArray, IntArray, SparseRow

NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows differ from their reference, over `texts` texts.

    `largest_difference` is over all components, `scale` is the largest of the reference's; `cosine_min` is
    that of the worst text, number `worst_text`, or of its worst token. `neighbours_kept` is the share of
    each text's nearest texts by the rows that are as near by the reference, `None` where there are
    too few texts to tell.
    """

    texts: int
    largest_difference: float
    scale: float
    cosine_min: float
    cosine_mean: float
    worst_text: int
    neighbours_kept: float | None

    @property
    def count(self) -> int:
        """How many texts were compared."""
        return self.texts

    @property
    def worst_cosine(self) -> float:
        """The cosine of the worst text."""
        return self.cosine_min

    def lines(self) -> list[str]:
        """The figures for a terminal."""
        return [
            f"texts               {self.texts}",
            f"largest difference  {self.largest_difference:.2e}",
            f"cosine, worst text  {self.cosine_min:.8f} (text {self.worst_text})",
            f"cosine, mean        {self.cosine_mean:.8f}",
            f"neighbours kept     {_share(self.neighbours_kept)}",
        ]


@dataclass(frozen=True, slots=True)
class ScoreComparison:
    """How scores differ from their reference, over `inputs` texts or pairs.

    `largest_difference` is over all scores, `scale` is the largest of the reference's, and `worst_input` is
    the number of the input that is furthest off. `decisions_kept` is the share of a query's best documents
    by the scores that are as good by the reference, or the share of inputs or tokens whose
    best label is the reference's; `None` where there are too few documents to tell.
    """

    inputs: int
    largest_difference: float
    scale: float
    worst_input: int
    decisions_kept: float | None

    @property
    def count(self) -> int:
        """How many inputs were compared."""
        return self.inputs

    @property
    def worst_cosine(self) -> float:
        """The cosine of rows that are as far off as the worst score, as `cosine_at` says."""
        return cosine_at(self.largest_difference, self.scale)

    def lines(self) -> list[str]:
        """The figures for a terminal."""
        return [
            f"inputs              {self.inputs}",
            f"largest difference  {self.largest_difference:.2e} (input {self.worst_input})",
            f"decisions kept      {_share(self.decisions_kept)}",
        ]


def compare_answers(
    task: Task, questions: Questions, found: Answers, reference: Answers
) -> Comparison | ScoreComparison:
    """Compare what was answered to `questions`, each with the reference's answer to the same.

    An answer of another shape than the reference's, or that is not finite, counts as infinitely far off.
    """
    match task:
        case Task.EMBED:
            return compare_rows(
                np.concatenate([*map(dense, found)]), np.concatenate([*map(dense, reference)])
            )
        case Task.SPARSE:
            return compare_rows(*_spread(found, reference))
        case Task.MULTI_VECTOR:
            return compare_token_rows(questions, [*map(dense, found)], [*map(dense, reference)])
        case Task.RERANK:
            return compare_scores(found, reference, _best_documents_kept(questions, found, reference))
        case Task.CLASSIFY | Task.CLASSIFY_TOKENS:
            return compare_scores(found, reference, _best_labels_kept(found, reference))


def compare_rows(rows: FloatArray, reference: FloatArray) -> Comparison:
    """Compare (texts, dim) with (texts, dim)."""
    if rows.shape != reference.shape:
        raise ValueError(f"rows have shape {rows.shape}, the reference has {reference.shape}")
    ours, theirs = normalize_rows(np.nan_to_num(rows)), normalize_rows(reference)
    kept = None
    if len(rows) > 2 * NEIGHBOURS:
        kept = share_kept(_between_texts(ours), _between_texts(theirs))
    return _compare(rows, reference, np.arange(len(rows)), len(rows), kept)


def compare_token_rows(
    questions: Questions, rows: Sequence[FloatArray], reference: Sequence[FloatArray]
) -> Comparison:
    """Compare (tokens, dim) with (tokens, dim) of each text; neighbours are a query's best documents."""
    alike = _of_one_shape(rows, reference)
    owners = np.repeat(np.arange(len(reference)), [len(one) for one in reference])
    kept = None
    if sum(question.side is Purpose.DOCUMENT for question in questions) > 2 * NEIGHBOURS:
        kept = share_kept(_between_sides(questions, alike), _between_sides(questions, reference))
    return _compare(np.concatenate(alike), np.concatenate(reference), owners, len(reference), kept)


def compare_scores(found: Answers, reference: Answers, decisions_kept: float | None) -> ScoreComparison:
    """Compare (n, labels) with (n, labels) of each input."""
    theirs = [*map(dense, reference)]
    pairs = zip(_of_one_shape([*map(dense, found)], theirs), theirs, strict=True)
    differences = [_differences(one, other).max(initial=0) for one, other in pairs]
    return ScoreComparison(
        inputs=len(reference),
        largest_difference=float(max(differences)),
        scale=float(max(np.abs(one).max(initial=0) for one in theirs)),
        worst_input=int(np.argmax(differences)),
        decisions_kept=decisions_kept,
    )


def share_kept(ours: FloatArray, theirs: FloatArray) -> float:
    """How many of the best ten of each row of `ours` are as good as the best ten of `theirs`: 0 to 1.

    Both are (queries, candidates), higher is better, and have more than ten candidates.
    """
    best = np.argpartition(-ours, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    enough = -np.partition(-theirs, NEIGHBOURS - 1, axis=1)[:, NEIGHBOURS - 1 : NEIGHBOURS]
    # By value, not by number: where the reference itself sees no difference, either choice is right.
    return float((np.take_along_axis(theirs, best, axis=1) >= enough).mean())


def _compare(
    rows: FloatArray, reference: FloatArray, owners: IntArray, texts: int, neighbours_kept: float | None
) -> Comparison:
    """Compare (rows, dim) with (rows, dim), of which row i is one of text `owners[i]`."""
    ours, theirs = normalize_rows(np.nan_to_num(rows)), normalize_rows(reference)
    cosines = np.asarray((ours * theirs).sum(axis=1, dtype=np.float64))
    # Two rows of zeros agree, whatever their cosine says.
    cosines[~rows.any(axis=1) & ~reference.any(axis=1)] = 1.0
    return Comparison(
        texts=texts,
        largest_difference=float(_differences(rows, reference).max()),
        scale=float(np.abs(reference).max()),
        cosine_min=float(cosines.min()),
        cosine_mean=float(cosines.mean()),
        worst_text=int(owners[cosines.argmin()]),
        neighbours_kept=neighbours_kept,
    )


def _differences(found: FloatArray, reference: FloatArray) -> FloatArray:
    differences: FloatArray = np.nan_to_num(np.abs(found - reference), nan=np.inf, posinf=np.inf)
    return differences


def _of_one_shape(found: Sequence[FloatArray], reference: Sequence[FloatArray]) -> list[FloatArray]:
    """`found`, with NaN in place of what has another shape than the reference: another number of tokens."""
    return [
        one if one.shape == other.shape else np.full_like(other, np.nan)
        for one, other in zip(found, reference, strict=True)
    ]


def _between_texts(rows: FloatArray) -> FloatArray:
    """Cosines of each text with every other, of rows of unit length: (texts, texts)."""
    cosines: FloatArray = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    return cosines


def _between_sides(questions: Questions, rows: Sequence[FloatArray]) -> FloatArray:
    """How well each query goes with every document: (queries, documents)."""
    sided = list(zip(questions, map(np.nan_to_num, rows), strict=True))
    documents = [rows for question, rows in sided if question.side is Purpose.DOCUMENT]
    queries = [rows for question, rows in sided if question.side is Purpose.QUERY]
    return np.array([[max_similarity(query, document) for document in documents] for query in queries])


def _spread(found: Answers, reference: Answers) -> tuple[FloatArray, FloatArray]:
    """Sparse rows with their zeros, in the columns that any of them has: twice (texts, columns)."""
    rows = [row for row in (*found, *reference) if isinstance(row, SparseRow)]
    columns = np.unique(np.concatenate([row.columns for row in rows]))
    spread = np.zeros((len(rows), max(1, len(columns))), np.float32)
    for whole, row in zip(spread, rows, strict=True):
        whole[np.searchsorted(columns, row.columns)] = row.values
    return spread[: len(found)], spread[len(found) :]


def _best_documents_kept(questions: Questions, found: Answers, reference: Answers) -> float | None:
    """`share_kept` over the queries that have documents enough."""
    scored = zip(questions, map(_score, found), map(_score, reference), strict=True)
    shares = []
    for _, group in groupby(scored, key=lambda item: item[0].text):
        _, ours, theirs = zip(*group, strict=True)
        if len(ours) > 2 * NEIGHBOURS:
            shares.append(share_kept(np.array([ours]), np.array([theirs])))
    return float(np.mean(shares)) if shares else None


def _score(answer: FloatArray | SparseRow) -> float:
    """The one score of a pair; the worst there can be where it is not finite."""
    return float(np.nan_to_num(dense(answer)[0, 0], nan=-np.inf))


def _best_labels_kept(found: Answers, reference: Answers) -> float:
    """The share of inputs, or of their tokens, that have the reference's best label."""
    theirs = [*map(dense, reference)]
    ours = np.concatenate(_of_one_shape([*map(dense, found)], theirs))
    best = np.concatenate(theirs).argmax(axis=1)
    agrees = np.isfinite(ours).all(axis=1) & (np.nan_to_num(ours).argmax(axis=1) == best)
    return float(agrees.mean())


def _share(value: float | None) -> str:
    return "too few texts" if value is None else f"{value:.4f}"
