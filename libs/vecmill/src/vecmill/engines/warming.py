"""Warming an engine up, and what a call costs: the straight line through measured times."""

import time
from collections.abc import Sequence

import numpy as np

from vecmill.engines.base import Engine
from vecmill.types import Batch, CostModel, TokenSequence

_TOKENS = (16, 64, 256)
_ROUNDS = 2


def warm_engine(engine: Engine) -> CostModel:
    """Run a few sizes in every width, so that buffers are there, and fit the narrowest one's cost."""
    narrow, *wider = engine.info.lane_widths
    batches = [_make_batch(tokens, engine.info.max_tokens) for tokens in _TOKENS]
    for width in wider:
        for batch in batches:
            engine.run(batch, width=width)
    times_s = [min(_time(engine, batch, narrow) for _ in range(_ROUNDS)) for batch in batches]
    return fit_cost([len(batch.token_ids) for batch in batches], times_s)


def fit_cost(tokens: Sequence[int], times_s: Sequence[float]) -> CostModel:
    """The straight line through measured times, neither part of it negative."""
    slope, intercept = np.polynomial.Polynomial.fit(tokens, times_s, 1).convert().coef[::-1]
    return CostModel(fixed_s=max(float(intercept), 0.0), per_token_s=max(float(slope), 1e-9))


def _make_batch(tokens: int, max_tokens: int) -> Batch:
    """Texts of about `tokens` tokens altogether, each of id 0, which every vocabulary has."""
    length = min(tokens, max_tokens, 64)
    return Batch.of([TokenSequence.of([0] * length)] * max(1, tokens // length))


def _time(engine: Engine, batch: Batch, width: int) -> float:
    start_s = time.perf_counter()
    engine.run(batch, width=width)
    return time.perf_counter() - start_s
