"""Cut rows stay rows of unit length where the model normalises; fewer bits are the reference's."""

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings as reference_quantize

from vecmill.values.embeddings import OutputDtype
from vecmill.vectors.transforms import (
    find_ranges,
    normalize_embeddings,
    quantize,
    stack_embeddings,
    truncate_embeddings,
)

ROWS = np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)


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
