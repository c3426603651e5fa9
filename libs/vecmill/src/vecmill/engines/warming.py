"""Warm-up of an engine, and its cost model: a straight line through the measured times of calls."""

from collections.abc import Sequence

import numpy as np

from vecmill.engines.base import Engine
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_info import CostModel

_TOKENS = (16, 64, 256)
# Noise is negligible in a call that takes this long; longer calls would only delay the start of large models.
_LONG_S = 0.1


def warm_engine(engine: Engine, *, clock: Clock = monotonic) -> CostModel:
    """Run batches of a few sizes in every width, and return the fitted cost of the narrowest width."""
    narrow, *wider = engine.info.lane_widths
    batches = [_make_batch(tokens, engine.info.max_tokens) for tokens in _TOKENS]
    engine.run(batches[0], width=narrow)  # untimed: the first call reads the weights from disk
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
    """Fit a straight line, without negative coefficients, to the times of calls of these sizes in tokens."""
    slope, intercept = np.polynomial.Polynomial.fit(tokens, times_s, 1).convert().coef[::-1]
    return CostModel(fixed_s=max(float(intercept), 0.0), per_token_s=max(float(slope), 1e-9))


def _make_batch(tokens: int, max_tokens: int) -> Batch:
    """Return texts with about `tokens` tokens in total, all with id 0, which every vocabulary has."""
    length = min(tokens, max_tokens, 64)
    return Batch.of([TokenSequence.of([0] * length)] * max(1, tokens // length))


def _time(engine: Engine, batch: Batch, width: int, clock: Clock) -> float:
    """Return the seconds of a call.

    A short call is timed twice and the faster time counts, since a delay may distort one time.
    """
    first_s = _time_once(engine, batch, width, clock)
    return first_s if first_s > _LONG_S else min(first_s, _time_once(engine, batch, width, clock))


def _time_once(engine: Engine, batch: Batch, width: int, clock: Clock) -> float:
    start_s = clock()
    engine.run(batch, width=width)
    return clock() - start_s
