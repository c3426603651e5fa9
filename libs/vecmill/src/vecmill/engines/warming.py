"""Warming an engine up, and what a call costs: the straight line through measured times."""

from collections.abc import Sequence

import numpy as np

from vecmill.clock import Clock, monotonic
from vecmill.engines.base import Engine
from vecmill.types import Batch, CostModel, TokenSequence

_TOKENS = (16, 64, 256)
# A call that takes this long is no noise, and longer ones would only delay the start of a large model.
_LONG_S = 0.1


def warm_engine(engine: Engine, *, clock: Clock = monotonic) -> CostModel:
    """Run a few sizes in every width, so that buffers are there, and fit the narrowest one's cost."""
    narrow, *wider = engine.info.lane_widths
    batches = [_make_batch(tokens, engine.info.max_tokens) for tokens in _TOKENS]
    engine.run(batches[0], width=narrow)  # reads the weights from disk, which no later call does
    times_s: list[float] = []
    for batch in batches:
        if len(times_s) > 1 and times_s[-1] > _LONG_S:
            break
        times_s.append(_time(engine, batch, narrow, clock))
    timed = batches[: len(times_s)]
    for width in wider:
        for batch in timed:
            engine.run(batch, width=width)
    return fit_cost([len(batch.token_ids) for batch in timed], times_s)


def fit_cost(tokens: Sequence[int], times_s: Sequence[float]) -> CostModel:
    """The straight line through measured times, neither part of it negative."""
    slope, intercept = np.polynomial.Polynomial.fit(tokens, times_s, 1).convert().coef[::-1]
    return CostModel(fixed_s=max(float(intercept), 0.0), per_token_s=max(float(slope), 1e-9))


def _make_batch(tokens: int, max_tokens: int) -> Batch:
    """Texts of about `tokens` tokens altogether, each of id 0, which every vocabulary has."""
    length = min(tokens, max_tokens, 64)
    return Batch.of([TokenSequence.of([0] * length)] * max(1, tokens // length))


def _time(engine: Engine, batch: Batch, width: int, clock: Clock) -> float:
    """Seconds of a call; of two, where it is so short that something else may have delayed one."""
    first_s = _time_once(engine, batch, width, clock)
    return first_s if first_s > _LONG_S else min(first_s, _time_once(engine, batch, width, clock))


def _time_once(engine: Engine, batch: Batch, width: int, clock: Clock) -> float:
    start_s = clock()
    engine.run(batch, width=width)
    return clock() - start_s
