"""The memory of a model that is loaded beside others, by the rules of docs/choosing.md."""

import pytest

from vecmill.serving_plan.needs import estimate_load, estimate_memory


@pytest.mark.parametrize(
    ("engine", "precision"), [("onnx", None), ("onnx", "int8-blocks"), ("openvino", "bf16"), ("torch", None)]
)
def test_a_load_takes_more_than_what_stays_and_a_first_one_no_less(
    engine: str, precision: str | None
) -> None:
    small, large = (estimate_load(parameters, engine, precision) for parameters in (30e6, 300e6))
    for found in (small, large):
        assert 0 < found.held_mb <= found.later_peak_mb <= found.first_peak_mb
    assert large.held_mb > 4 * small.held_mb


def test_the_weights_count_as_in_a_server_of_one_model() -> None:
    alone, beside = estimate_memory(100e6)["onnx fp32"], estimate_load(100e6, "onnx", "fp32")
    assert alone.reserve_mb - 200 == beside.held_mb - 30 == 400
