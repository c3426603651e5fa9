"""Cut rows stay rows of unit length where the model normalises."""

import numpy as np

from vecmill.rows import cut_rows, normalize_rows, stack_rows

ROWS = np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)


def test_cutting_keeps_the_first_columns_contiguous() -> None:
    cut = cut_rows(ROWS, 3, normalize=False)
    np.testing.assert_array_equal(cut, ROWS[:, :3])
    assert cut.flags.c_contiguous


def test_cutting_renormalises() -> None:
    cut = cut_rows(ROWS, 3, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(cut[0] / cut[0, 0], ROWS[0, :3] / ROWS[0, 0], rtol=1e-5)


def test_a_row_of_zeros_stays_finite() -> None:
    assert np.isfinite(normalize_rows(np.zeros((1, 4), np.float32))).all()


def test_rows_of_several_texts_are_joined_in_order() -> None:
    np.testing.assert_array_equal(stack_rows([ROWS[i : i + 1] for i in range(5)]), ROWS)
