"""Scores are what the names of activations and similarities say, whatever the size of the logits."""

import numpy as np
import pytest

from vecmill.models.heads import Activation, Similarity
from vecmill.vectors.scores import activate_logits, cosine_scores, max_similarity, similarity_scores

ROWS = np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)
LOGITS = np.array([[0.0, 1.5, -2.0], [800.0, -800.0, 0.0]], np.float32)


def test_sigmoid_and_softmax_are_exact_and_finite() -> None:
    wide = LOGITS.astype(np.longdouble)
    sigmoids = activate_logits(LOGITS, Activation.SIGMOID)
    np.testing.assert_allclose(sigmoids, 1 / (1 + np.exp(-wide)), rtol=1e-6, atol=1e-12)
    shares = activate_logits(LOGITS, Activation.SOFTMAX)
    np.testing.assert_allclose(shares, np.exp(wide) / np.exp(wide).sum(axis=1, keepdims=True), atol=1e-6)
    assert activate_logits(LOGITS, Activation.IDENTITY) is LOGITS
    assert sigmoids.dtype == shares.dtype == np.float32


def test_scores_are_cosines_whatever_the_lengths() -> None:
    scores = cosine_scores(ROWS[0] * 3, np.stack([ROWS[0] * 7, -ROWS[0], ROWS[1]]))
    expected = ROWS[0] @ ROWS[1] / np.linalg.norm(ROWS[0]) / np.linalg.norm(ROWS[1])
    assert scores == pytest.approx([1, -1, expected], abs=1e-6)
    assert scores.max() <= 1
    assert scores.dtype == np.float32


@pytest.mark.parametrize("name", Similarity)
def test_similarities_are_those_of_the_reference(name: Similarity) -> None:
    from sentence_transformers import SimilarityFunction

    expected = SimilarityFunction.to_similarity_fn(name)(ROWS[:1], ROWS)[0].numpy()
    scores = similarity_scores(ROWS[0], ROWS, name)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert scores.dtype == np.float32
    assert scores.argmax() == 0 or name is Similarity.DOT


def test_each_token_of_the_query_counts_with_its_best_match() -> None:
    query, document = np.eye(3, dtype=np.float32)[:2], np.array([[2, 0, 0], [1, -3, 0]], np.float32)
    assert max_similarity(query, document) == 2 + 0
    assert max_similarity(query, document[1:]) == 1 - 3
    assert max_similarity(query, document[:0]) == 0
