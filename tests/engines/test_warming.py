"""What a call costs, as measured when an engine is warmed up."""

import pytest

from vecmill.engines.warming import fit_cost


def test_the_cost_is_a_straight_line_that_never_sinks() -> None:
    cost = fit_cost([10, 20, 40], [0.003, 0.005, 0.009])
    assert cost.fixed_s == pytest.approx(0.001)
    assert cost.per_token_s == pytest.approx(0.0002)
    assert fit_cost([10, 20], [0.001, 0.009]).fixed_s == 0
    assert fit_cost([10, 20], [0.009, 0.001]).per_token_s > 0
