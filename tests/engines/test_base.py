"""What a call costs, as measured when an engine is warmed up."""

import pytest

from vecmill.engines.base import WARM_UP_TOKENS, fit_cost, warm_engine
from vecmill.engines.fake import FakeEngine
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings


def test_the_cost_is_a_straight_line_that_never_sinks() -> None:
    cost = fit_cost([10, 20, 40], [0.003, 0.005, 0.009])
    assert cost.fixed_s == pytest.approx(0.001)
    assert cost.per_token_s == pytest.approx(0.0002)
    assert fit_cost([10, 20], [0.001, 0.009]).fixed_s == 0


def test_tokens_cost_something_also_after_a_disturbed_timing() -> None:
    """The smaller call seems to take as long as the larger one, to the last bit, or longer."""
    for times_s in ([0.010, 0.010], [0.010, 0.010, 0.010], [0.100, 0.010]):
        cost = fit_cost([16, 32, 64][-len(times_s) :], times_s)
        assert cost.per_token_s == pytest.approx(0.1 * 0.010 / 64)
        assert cost.fixed_s + 64 * cost.per_token_s == pytest.approx(0.010)


class SteadyEngine(FakeEngine):
    """An engine whose calls take so long a token, by a clock that nothing else moves."""

    def __init__(self, per_token_s: float) -> None:
        super().__init__()
        self.per_token_s = per_token_s
        self.now = 0.0
        self.tokens: list[int] = []

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        self.tokens.append(len(batch.token_ids))
        self.now += self.per_token_s * len(batch.token_ids)
        return super().run(batch, width=width)


@pytest.mark.parametrize(("per_token_s", "tokens"), [(1e-5, 16 * 4 + 64 * 2), (5e-3, 16 * 4 + 64)])
def test_a_large_model_is_not_kept_from_starting(per_token_s: float, tokens: int) -> None:
    engine = SteadyEngine(per_token_s)
    texts = [TokenSequence.of([1] * tokens) for tokens in WARM_UP_TOKENS]
    cost = warm_engine(engine, texts, clock=lambda: engine.now)
    assert sum(engine.tokens) == tokens
    assert cost.per_token_s == pytest.approx(per_token_s)


def test_a_disturbed_timing_is_repeated() -> None:
    class DisturbedEngine(SteadyEngine):
        def run(self, batch: Batch, *, width: int) -> Embeddings:
            if 1 <= len(self.tokens) <= 2:  # the timed calls of the smaller size
                self.now += 10.0
            return super().run(batch, width=width)

    engine = DisturbedEngine(1e-5)
    texts = [TokenSequence.of([1] * tokens) for tokens in WARM_UP_TOKENS]
    cost = warm_engine(engine, texts, clock=lambda: engine.now)
    assert cost.per_token_s == pytest.approx(1e-5)
