"""Comparison of a model's outputs with the outputs of a reference, over texts in random batches.

Embeddings are compared by differences, by cosines, and by recall@10: the share of nearest neighbours that are
the same. Scores are compared by differences, and by the share of decisions that agree: recall@10 of the
documents of a query, or the best label of a text or token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from vecmill.engines.base import Engine
from vecmill.models import ModelDescription, Task
from vecmill.requests import Purpose
from vecmill.serving_plan.plans import Accuracy
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.embeddings import Embedding, SparseEmbedding
from vecmill.vectors import cosine_at, dense, max_similarity, normalize_embeddings
from vecmill.verification.model_outputs import (
    CheckInputs,
    ModelOutputs,
    ModelProcessor,
    compute_in_batches,
    make_check_inputs,
)
from vecmill.verification.reference import Reference

NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class EmbeddingComparison:
    """The differences between the embeddings of `count` texts and their reference.

    `largest_difference` is over all components, and `scale` is the largest component of the reference.
    `cosine_min` is the cosine of the worst text, number `worst_text`, or of its worst token.
    `recall_at_10` is the share of each text's ten nearest texts that are also nearest in the reference,
    `None` if there are too few texts.
    """

    count: int
    largest_difference: float
    scale: float
    cosine_min: float
    cosine_mean: float
    worst_text: int
    recall_at_10: float | None

    @property
    def worst_cosine(self) -> float:
        """The cosine of the worst text."""
        return self.cosine_min

    def lines(self) -> list[str]:
        """Return the figures as lines for a terminal."""
        return [
            f"texts               {self.count}",
            f"largest difference  {self.largest_difference:.2e}",
            f"cosine, worst text  {self.cosine_min:.8f} (text {self.worst_text})",
            f"cosine, mean        {self.cosine_mean:.8f}",
            f"recall@10           {_share(self.recall_at_10)}",
        ]


@dataclass(frozen=True, slots=True)
class ScoreComparison:
    """The differences between the scores of `count` texts or pairs and their reference.

    `largest_difference` is over all scores, `scale` is the largest score of the reference, and `worst_input`
    is the number of the input with the largest difference. `agreement` is recall@10 of the documents of a
    query, or the share of inputs or tokens whose best label is the same. It is `None` if there are too few
    documents.
    """

    count: int
    largest_difference: float
    scale: float
    worst_input: int
    agreement: float | None

    @property
    def worst_cosine(self) -> float:
        """The cosine that `cosine_at` computes from the largest difference."""
        return cosine_at(self.largest_difference, self.scale)

    def lines(self) -> list[str]:
        """Return the figures as lines for a terminal."""
        return [
            f"inputs              {self.count}",
            f"largest difference  {self.largest_difference:.2e} (input {self.worst_input})",
            f"same decisions      {_share(self.agreement)}",
        ]


def compare_outputs(
    task: Task, inputs: CheckInputs, found: ModelOutputs, reference: ModelOutputs
) -> EmbeddingComparison | ScoreComparison:
    """Compare the outputs `found` for `inputs` with the outputs of the reference for the same inputs.

    The difference is infinite for an output that is not finite or whose shape differs from the reference
    output.
    """
    match task:
        case Task.EMBED:
            return compare_embeddings(
                np.concatenate([*map(dense, found)]), np.concatenate([*map(dense, reference)])
            )
        case Task.SPARSE:
            return compare_embeddings(*_densify(found, reference))
        case Task.MULTI_VECTOR:
            return compare_token_embeddings(inputs, [*map(dense, found)], [*map(dense, reference)])
        case Task.RERANK:
            return compare_scores(found, reference, _recall_of_documents(inputs, found, reference))
        case Task.CLASSIFY | Task.CLASSIFY_TOKENS:
            return compare_scores(found, reference, _agreement_of_labels(found, reference))


def compare_embeddings(found: FloatArray, reference: FloatArray) -> EmbeddingComparison:
    """Compare embeddings, (texts, dim), with their reference, (texts, dim).

    Raises `ValueError` if the shapes differ.
    """
    if found.shape != reference.shape:
        raise ValueError(f"the embeddings have shape {found.shape}, the reference has {reference.shape}")
    recall = None
    if len(found) > 2 * NEIGHBOURS:
        recall = find_recall(_similarities(np.nan_to_num(found)), _similarities(reference))
    return _compare(found, reference, np.arange(len(found)), len(found), recall)


def compare_token_embeddings(
    inputs: CheckInputs, found: Sequence[FloatArray], reference: Sequence[FloatArray]
) -> EmbeddingComparison:
    """Compare the token embeddings, (tokens, dim), of each text.

    The neighbours of a query are its best documents.
    """
    alike = _of_one_shape(found, reference)
    owners = np.repeat(np.arange(len(reference)), [len(one) for one in reference])
    recall = None
    if sum(item.purpose is Purpose.DOCUMENT for item in inputs) > 2 * NEIGHBOURS:
        recall = find_recall(_query_scores(inputs, alike), _query_scores(inputs, reference))
    return _compare(np.concatenate(alike), np.concatenate(reference), owners, len(reference), recall)


def compare_scores(found: ModelOutputs, reference: ModelOutputs, agreement: float | None) -> ScoreComparison:
    """Compare the scores, (n, labels), of each input with their reference."""
    theirs = [*map(dense, reference)]
    pairs = zip(_of_one_shape([*map(dense, found)], theirs), theirs, strict=True)
    differences = [_differences(one, other).max(initial=0) for one, other in pairs]
    return ScoreComparison(
        count=len(reference),
        largest_difference=float(max(differences)),
        scale=float(max(np.abs(one).max(initial=0) for one in theirs)),
        worst_input=int(np.argmax(differences)),
        agreement=agreement,
    )


def find_recall(found: FloatArray, reference: FloatArray) -> float:
    """Return recall@10: the share, 0 to 1, of each query's ten best candidates that the reference ranks so.

    Both arrays are scores, (queries, candidates), with more than ten candidates; higher is better.
    """
    best = np.argpartition(-found, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    tenth = -np.partition(-reference, NEIGHBOURS - 1, axis=1)[:, NEIGHBOURS - 1 : NEIGHBOURS]
    # Compared by value: candidates with equal reference scores are interchangeable.
    return float((np.take_along_axis(reference, best, axis=1) >= tenth).mean())


def _compare(
    found: FloatArray, reference: FloatArray, owners: IntArray, texts: int, recall_at_10: float | None
) -> EmbeddingComparison:
    """Compare embeddings, (n, dim), with their reference; embedding i belongs to text `owners[i]`."""
    products = normalize_embeddings(np.nan_to_num(found)) * normalize_embeddings(reference)
    cosines = np.asarray(products.sum(axis=1, dtype=np.float64))
    # Two zero vectors are equal, although their cosine is 0.
    cosines[~found.any(axis=1) & ~reference.any(axis=1)] = 1.0
    return EmbeddingComparison(
        count=texts,
        largest_difference=float(_differences(found, reference).max()),
        scale=float(np.abs(reference).max()),
        cosine_min=float(cosines.min()),
        cosine_mean=float(cosines.mean()),
        worst_text=int(owners[cosines.argmin()]),
        recall_at_10=recall_at_10,
    )


def _differences(found: FloatArray, reference: FloatArray) -> FloatArray:
    differences: FloatArray = np.nan_to_num(np.abs(found - reference), nan=np.inf, posinf=np.inf)
    return differences


def _of_one_shape(found: Sequence[FloatArray], reference: Sequence[FloatArray]) -> list[FloatArray]:
    """Return `found` with NaN in place of arrays of the wrong shape, such as a wrong number of tokens."""
    return [
        one if one.shape == other.shape else np.full_like(other, np.nan)
        for one, other in zip(found, reference, strict=True)
    ]


def _similarities(embeddings: FloatArray) -> FloatArray:
    """Return the cosine of each text with every other text: (texts, texts)."""
    normalized = normalize_embeddings(embeddings)
    cosines: FloatArray = normalized @ normalized.T
    np.fill_diagonal(cosines, -np.inf)
    return cosines


def _query_scores(inputs: CheckInputs, embeddings: Sequence[FloatArray]) -> FloatArray:
    """Return the score of each query with every document: (queries, documents)."""
    finite = list(zip(inputs, map(np.nan_to_num, embeddings), strict=True))
    documents = [vectors for item, vectors in finite if item.purpose is Purpose.DOCUMENT]
    queries = [vectors for item, vectors in finite if item.purpose is Purpose.QUERY]
    return np.array([[max_similarity(query, document) for document in documents] for query in queries])


def _densify(found: ModelOutputs, reference: ModelOutputs) -> tuple[FloatArray, FloatArray]:
    """Return both sets of embeddings as dense arrays over the same columns, each (texts, columns)."""
    sparse = [one for one in (*found, *reference) if isinstance(one, SparseEmbedding)]
    columns = np.unique(np.concatenate([one.columns for one in sparse]))
    rows = np.zeros((len(sparse), max(1, len(columns))), np.float32)
    for row, one in zip(rows, sparse, strict=True):
        row[np.searchsorted(columns, one.columns)] = one.values
    return rows[: len(found)], rows[len(found) :]


def _recall_of_documents(inputs: CheckInputs, found: ModelOutputs, reference: ModelOutputs) -> float | None:
    """Return the mean of `find_recall` over the queries with enough documents."""
    scored = zip(inputs, map(_score, found), map(_score, reference), strict=True)
    shares = []
    for _, group in groupby(scored, key=lambda item: item[0].text):
        _, ours, theirs = zip(*group, strict=True)
        if len(ours) > 2 * NEIGHBOURS:
            shares.append(find_recall(np.array([ours]), np.array([theirs])))
    return float(np.mean(shares)) if shares else None


def _score(output: Embedding) -> float:
    """Return the only score of a pair; a score that is NaN is the lowest."""
    return float(np.nan_to_num(dense(output)[0, 0], nan=-np.inf))


def _agreement_of_labels(found: ModelOutputs, reference: ModelOutputs) -> float:
    """Return the share of inputs, or of their tokens, with the reference's best label."""
    theirs = [*map(dense, reference)]
    ours = np.concatenate(_of_one_shape([*map(dense, found)], theirs))
    best = np.concatenate(theirs).argmax(axis=1)
    agrees = np.isfinite(ours).all(axis=1) & (np.nan_to_num(ours).argmax(axis=1) == best)
    return float(agrees.mean())


def _share(value: float | None) -> str:
    return "too few texts" if value is None else f"{value:.4f}"


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The differences between an engine and a reference.

    `comparison` is a `ScoreComparison` for rerankers and classifiers, an `EmbeddingComparison` for other
    models.
    """

    model: str
    engine: str
    precision: str
    reference: str
    comparison: EmbeddingComparison | ScoreComparison

    @property
    def accuracy(self) -> Accuracy:
        """The differences, in the figures that scores and embeddings share."""
        found = self.comparison
        off, scale = found.largest_difference, found.scale
        if isinstance(found, ScoreComparison):
            return Accuracy(self.reference, found.count, off, scale, None, None, found.agreement)
        cosines = found.cosine_min, found.cosine_mean
        return Accuracy(self.reference, found.count, off, scale, *cosines, found.recall_at_10)

    def is_within(self, tolerance: float) -> bool:
        """Return whether the largest difference is at most `tolerance`.

        If the largest reference value exceeds 1, the tolerance is relative to this value, since fp32 has
        seven significant digits.
        """
        found = self.comparison
        return found.largest_difference <= tolerance * max(1.0, found.scale)

    def lines(self) -> list[str]:
        """Return the report as lines for a terminal."""
        return [
            f"{self.model}: engine {self.engine}, {self.precision}, against {self.reference}",
            *self.comparison.lines(),
        ]


def compare_with_reference(
    description: ModelDescription,
    engine: Engine,
    reference: Reference,
    texts: Sequence[str],
    *,
    seed: int = 0,
) -> VerificationReport:
    """Compare the outputs of `engine` for `texts`, in random batches, with the outputs of `reference`.

    To check several engines over the same texts, make a reference with `store_outputs`, which computes only
    once.
    """
    inputs = make_check_inputs(description, texts)
    found = compute_in_batches(engine, ModelProcessor.load(description), inputs, seed=seed)
    return VerificationReport(
        model=description.name,
        engine=engine.info.name,
        precision=engine.info.precision,
        reference=reference.name,
        comparison=compare_outputs(description.task, inputs, found, reference.outputs_for(inputs)),
    )
