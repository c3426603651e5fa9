"""The search finds what a plain sort by trec_eval's rule finds."""

import numpy as np
import pytest

from vecmill.evaluation import exact_search
from vecmill.evaluation.document_scores import SparseBlock, TokenBlock, score_bits, score_integers
from vecmill.evaluation.exact_search import DocumentOrder, find_best
from vecmill.evaluation.vector_forms import DenseForm, DenseVectors
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.output_kinds import OutputDtype
from vecmill.vectors import max_similarity, quantize, sparse_product


def draw_ids(random: np.random.Generator, count: int) -> list[str]:
    """Ids whose order as texts is not that of their numbers, some beyond ASCII."""
    found = [f"{'éz中a'[number % 4]}{number}" for number in range(count)]
    random.shuffle(found)
    return found


def sort_plainly(scores: FloatArray, ids: list[str]) -> list[int]:
    """By score, and of equal ones the greater id in UTF-8 first."""
    key = lambda number: (float(np.float32(scores[number])), ids[number].encode())  # noqa: E731
    return sorted(range(len(ids)), key=key, reverse=True)


@pytest.mark.parametrize("depth", [1, 7, 100, 500])
def test_blocks_find_what_a_sort_of_all_finds(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_search, "BLOCK_DOCUMENTS", 64)
    monkeypatch.setattr(exact_search, "BLOCK_QUERIES", 3)
    random = np.random.default_rng(0)
    ids = draw_ids(random, 300)
    # Few different scores, so that most documents tie; 0 and -0 are equal.
    scores = (random.integers(-3, 4, (8, 300)) / 3 * random.choice([1.0, -1.0], (8, 300))).astype(np.float32)
    found = find_best(lambda some, block: scores[some, block], DocumentOrder(ids), 8, depth)
    for row, numbers in zip(scores, found, strict=True):
        assert numbers.tolist() == sort_plainly(row, ids)[:depth]


def test_a_document_may_be_hidden_from_a_query() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], np.float32)
    order = DocumentOrder(["a", "b", "c"])
    found = find_best(lambda some, block: scores[some, block], order, 2, 3, np.array([0, -1]))
    assert [numbers.tolist() for numbers in found] == [[1, 2], [0, 1, 2]]


@pytest.mark.parametrize("similarity", Similarity)
@pytest.mark.parametrize("is_normalized", [True, False])
def test_equal_vectors_tie_wherever_they_stand(similarity: Similarity, is_normalized: bool) -> None:
    """BLAS gives the same row other last bits at another place."""
    random = np.random.default_rng(1)
    rows = random.standard_normal((2_000, 96), np.float32)
    rows[1::2] = rows[::2]
    queries = random.standard_normal((5, 96), np.float32)
    if is_normalized:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    ids = draw_ids(random, len(rows))
    found = DenseVectors(queries, rows, similarity, is_normalized).search(DenseForm(), DocumentOrder(ids), 20)
    for numbers in found:
        pairs = numbers.reshape(-1, 2)
        assert (pairs // 2 == pairs[:, :1] // 2).all()
        assert all(ids[first] > ids[second] for first, second in pairs)


def test_floats_are_ranked_as_in_float64() -> None:
    random = np.random.default_rng(2)
    rows, queries = (random.standard_normal((count, 64), np.float32) for count in (500, 9))
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    order = DocumentOrder([str(number) for number in range(500)])
    found = DenseVectors(queries, rows, Similarity.COSINE, False).search(DenseForm(), order, 10)
    assert [numbers.tolist() for numbers in found] == [
        np.argsort(-(unit @ query.astype(np.float64)))[:10].tolist() for query in queries
    ]


def test_fewer_dimensions_are_scaled_again_as_the_model_does() -> None:
    random = np.random.default_rng(3)
    rows, queries = (random.standard_normal((count, 32), np.float32) for count in (200, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    order = DocumentOrder([str(number) for number in range(200)])
    found = DenseVectors(queries, rows, Similarity.COSINE, True).search(DenseForm(8), order, 5)
    short = rows[:, :8] / np.linalg.norm(rows[:, :8], axis=1, keepdims=True)
    assert [numbers.tolist() for numbers in found] == [
        np.argsort(-(short @ query[:8]))[:5].tolist() for query in queries
    ]


@pytest.mark.parametrize("dtype", [OutputDtype.INT8, OutputDtype.UINT8])
@pytest.mark.parametrize("dim", [64, 1_040])
@pytest.mark.parametrize("similarity", Similarity)
def test_integers_are_compared_by_the_distance_of_the_model(
    dtype: OutputDtype, dim: int, similarity: Similarity
) -> None:
    random = np.random.default_rng(4)
    rows = random.standard_normal((300, dim), np.float32)
    ranges = np.stack([rows.min(axis=0), rows.max(axis=0)])
    numbers = quantize(rows, dtype, ranges)
    numbers[200:] = numbers[:100]  # which tie
    wide = numbers.astype(np.float64)
    expected = {
        Similarity.DOT: wide[:4] @ wide.T,
        Similarity.COSINE: (wide[:4] @ wide.T) / np.linalg.norm(wide, axis=1),
        Similarity.EUCLIDEAN: 2 * wide[:4] @ wide.T - np.square(wide).sum(axis=1),
        Similarity.MANHATTAN: -np.abs(wide[:4, None] - wide[None]).sum(axis=2),
    }
    exact = expected[similarity].astype(np.float32)
    np.testing.assert_allclose(score_integers(numbers[:4], numbers, similarity), exact, rtol=1e-6)
    rows[200:] = rows[:100]
    ids = [str(number) for number in range(300)]
    vectors = DenseVectors(rows[:4], rows, similarity, False, lambda dimensions: ranges)
    found = vectors.search(DenseForm(None, dtype), DocumentOrder(ids), 20)
    assert [each.tolist() for each in found] == [sort_plainly(row, ids)[:20] for row in exact]
    # Without ranges of the model those of the documents are taken.
    own = np.stack([rows.min(axis=0), rows.max(axis=0)])
    both = [
        DenseVectors(rows[:4], rows, similarity, False, *given).search(
            DenseForm(None, dtype), DocumentOrder(ids), 20
        )
        for given in ([], [lambda dimensions: own])
    ]
    assert [each.tolist() for each in both[0]] == [each.tolist() for each in both[1]]


@pytest.mark.parametrize("dtype", [OutputDtype.BINARY, OutputDtype.UBINARY])
def test_bits_are_compared_by_the_hamming_distance(dtype: OutputDtype) -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((300, 40), np.float32)
    bits = rows > 0
    distances = (bits[:4, None] != bits[None]).sum(axis=2)
    packed = np.packbits(bits, axis=1)
    assert (score_bits(packed[:4], packed) == -distances).all()
    ids = draw_ids(random, 300)
    found = DenseVectors(rows[:4], rows, Similarity.COSINE, False).search(
        DenseForm(None, dtype), DocumentOrder(ids), 30
    )
    assert [each.tolist() for each in found] == [sort_plainly(-row, ids)[:30] for row in distances]


def test_the_bytes_of_a_vector() -> None:
    forms = [DenseForm(None, OutputDtype.FLOAT), DenseForm(128, OutputDtype.INT8)]
    forms += [DenseForm(None, OutputDtype.UBINARY), DenseForm(256, OutputDtype.BINARY)]
    assert [form.count_bytes(384) for form in forms] == [1536, 128, 48, 32]


def draw_sparse(random: np.random.Generator, count: int) -> list[SparseEmbedding]:
    found = []
    for size in random.integers(0, 12, count):
        columns = np.sort(random.choice(50, size, replace=False)).astype(np.int64)
        found.append(SparseEmbedding(columns, random.random(size, np.float32)))
    return found


def test_sparse_products_are_those_of_the_pairs() -> None:
    random = np.random.default_rng(6)
    queries, documents = draw_sparse(random, 6), draw_sparse(random, 80)
    expected = [[sparse_product(query, one) for one in documents] for query in queries]
    np.testing.assert_allclose(SparseBlock(documents).score(queries), expected, atol=1e-6)
    assert SparseBlock([]).score(queries).shape == (6, 0)


def test_token_scores_are_those_of_the_pairs() -> None:
    random = np.random.default_rng(7)
    sizes = [*random.integers(0, 9, 60), 0]
    documents = [random.standard_normal((size, 16), np.float32) for size in sizes]
    queries = [random.standard_normal((size, 16), np.float32) for size in (1, 5, 3)]
    expected = np.array([[max_similarity(query, one) for one in documents] for query in queries])
    found = TokenBlock(documents)
    np.testing.assert_allclose(found.score(queries), expected, rtol=1e-5, atol=1e-5)
    means = expected / np.array([[1], [5], [3]])
    np.testing.assert_allclose(found.score(queries, as_mean=True), means, rtol=1e-5, atol=1e-5)
