"""Models whose queues never empty get equal core seconds, whatever their speed and however they started."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from batching.shared_machine import SharedMachine, SharedModel
from vecmill.engines.base import WARM_UP_TOKENS, fit_cost

LARGEST_RATIO = 1.2


def make_model(
    per_token_s: float = 2.5e-4,
    *,
    error: float = 1.0,
    disturbed: bool = False,
    tokens: int = 100,
    weight: float = 1.0,
    starts_at_s: float = 0.0,
) -> SharedModel:
    """Return a model whose warm-up measured `error` times what its calls take.

    `disturbed` is a warm-up whose smaller call took as long as the larger one. The clients have more texts
    than the lanes compute at once, so that the queue never empties.
    """
    fixed_s = 2 * per_token_s
    times_s = [error * (fixed_s + per_token_s * count) for count in WARM_UP_TOKENS]
    measured = fit_cost(WARM_UP_TOKENS, [times_s[-1]] * 2 if disturbed else times_s)
    return SharedModel(fixed_s, per_token_s, measured, max(32, 2048 // tokens), tokens, weight, starts_at_s)


models = st.builds(
    make_model,
    st.sampled_from((1e-4, 2.5e-4, 5e-4)),
    error=st.sampled_from((0.1, 0.33, 1.0, 3.0, 10.0)),
    disturbed=st.booleans(),
    tokens=st.sampled_from((16, 100, 200)),
    starts_at_s=st.sampled_from((0.0, 1.0, 3.0)),
)


@pytest.mark.promise("models-share-cores")
@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.full)])
def test_models_get_equal_core_seconds(examples: int) -> None:
    @settings(max_examples=examples, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(st.lists(models, min_size=2, max_size=4))
    def check(served: list[SharedModel]) -> None:
        used_s = SharedMachine(served).core_seconds(10.0, 20.0)
        assert max(used_s) <= LARGEST_RATIO * min(used_s), used_s

    check()


@pytest.mark.promise("models-share-cores")
@pytest.mark.parametrize("weight", [0.5, 2.0, 4.0])
def test_models_get_core_seconds_by_their_weights(weight: float) -> None:
    served = [make_model(weight=weight), make_model(1e-4)]
    one_s, other_s = SharedMachine(served).core_seconds(5.0, 15.0)
    assert one_s / other_s == pytest.approx(weight, rel=0.1)


def test_a_model_whose_warm_up_was_disturbed_is_not_served_more() -> None:
    """A timing of 16 tokens that takes as long as one of 64 makes texts look free of charge."""
    one_s, other_s = SharedMachine([make_model(disturbed=True), make_model()]).core_seconds(0.0, 5.0)
    assert max(one_s, other_s) <= LARGEST_RATIO * min(one_s, other_s)
