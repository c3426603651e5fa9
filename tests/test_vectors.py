"""Cut rows stay rows of unit length where the model normalises; fewer bits are the reference's.

Scores are what the names of activations and similarities say, whatever the size of the logits.
"""

import numpy as np
import pytest

from vecmill.models.heads import Activation, Similarity
from vecmill.values.embeddings import OutputDtype
from vecmill.vectors import (
    activate_logits,
    cosine_scores,
    find_ranges,
    max_similarity,
    normalize_embeddings,
    quantize,
    similarity_scores,
    stack_embeddings,
    truncate_embeddings,
)

ROWS = np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)
LOGITS = np.array([[0.0, 1.5, -2.0], [800.0, -800.0, 0.0]], np.float32)


def test_cutting_keeps_the_first_columns_contiguous() -> None:
    cut = truncate_embeddings(ROWS, 3, normalize=False)
    np.testing.assert_array_equal(cut, ROWS[:, :3])
    assert cut.flags.c_contiguous


def test_cutting_renormalises() -> None:
    cut = truncate_embeddings(ROWS, 3, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(cut[0] / cut[0, 0], ROWS[0, :3] / ROWS[0, 0], rtol=1e-5)


def test_a_row_of_zeros_stays_finite() -> None:
    assert np.isfinite(normalize_embeddings(np.zeros((1, 4), np.float32))).all()


def test_rows_of_several_texts_are_joined_in_order() -> None:
    np.testing.assert_array_equal(stack_embeddings([ROWS[i : i + 1] for i in range(5)]), ROWS)


@pytest.mark.parametrize("kind", OutputDtype)
@pytest.mark.parametrize("dim", [1, 8, 12, 384])
def test_fewer_bits_are_those_of_the_reference(kind: OutputDtype, dim: int) -> None:
    from sentence_transformers.util import quantize_embeddings as reference_quantize

    draw = np.random.default_rng(dim)
    rows = draw.standard_normal((64, dim)).astype(np.float32)
    rows[0] = 0  # is not above 0
    # Of other rows: some of these are outside of them.
    ranges = find_ranges(draw.standard_normal((20, dim)).astype(np.float32))
    precision = "float32" if kind is OutputDtype.FLOAT else kind.value
    expected = reference_quantize(rows, precision, ranges=ranges)
    found = quantize(rows, kind, ranges)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [OutputDtype.INT8, OutputDtype.UINT8])
def test_a_column_that_is_always_the_same_is_the_reference_s_too(kind: OutputDtype) -> None:
    from sentence_transformers.util import quantize_embeddings as reference_quantize

    ranges = find_ranges(np.full((3, 2), 0.25, np.float32))
    rows = np.array([[0.25, -5.0], [0.25, 5.0]], np.float32)
    np.testing.assert_array_equal(
        quantize(rows, kind, ranges), reference_quantize(rows, kind.value, ranges=ranges)
    )


def test_the_ends_of_a_range_are_the_first_and_the_last_step() -> None:
    ranges = np.array([[0.0, -51.0], [255.0, 204.0]], np.float32)  # steps of 1
    rows = np.array([[0.0, -51.0], [255.0, 204.0], [-9.0, 999.0], [1.9, -50.0]], np.float32)
    steps = [[0, 0], [255, 255], [0, 255], [1, 1]]
    assert quantize(rows, OutputDtype.UINT8, ranges).tolist() == steps
    assert quantize(rows, OutputDtype.INT8, ranges).tolist() == [[one - 128 for one in row] for row in steps]


def test_bits_are_packed_with_the_first_number_highest() -> None:
    row = np.array([[0.5, -0.5, 0.0, 0.1, -1.0, 2.0, -2.0, 1e-9]], np.float32)
    assert quantize(row, OutputDtype.UBINARY).tolist() == [[0b10010101]]
    assert quantize(row, OutputDtype.BINARY).tolist() == [[0b10010101 - 128]]


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
