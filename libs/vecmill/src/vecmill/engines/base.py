"""The interface between the batcher and the engines, and their warm-up.

An engine takes a ragged `Batch` and returns finished `Embeddings`. Padding, shape buckets and pooling are
internal to the engine. The engine does not know queues or HTTP. Several threads call `run` at once, each in
its own lane. The engine translates all exceptions of its runtime into `vecmill.errors`. The warm-up measures
the cost model: a straight line through the times of calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vecmill.errors import InvalidConfig
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Engine(Protocol):
    """A loaded model that computes embeddings or scores. All engines pass `tests/contract/`."""

    @property
    def info(self) -> EngineInfo:
        """The name, precision, device and limits of the engine. Constant after construction."""
        ...

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run calls of several sizes, so that the first request is fast, and return the cost of calls.

        `texts` are texts of the model with about `WARM_UP_TOKENS` tokens, one for each number; without them,
        texts of token 0, which some models cannot read.
        """
        ...

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute the embeddings of `batch` on `width` cores. `width` must be in `info.lane_widths`.

        The embedding of a text depends on that text alone. Raises `EngineError` for any failure.
        """
        ...

    def renew(self) -> None:
        """Make new sessions for the calls that begin from now on, since a hung call may block the old ones.

        A call that has begun keeps its session, which is released when the call returns. Several lanes may
        call `run` meanwhile. Raises any error of the engine if it cannot make new sessions.
        """
        ...

    def close(self) -> None:
        """Release memory and threads. `close` may be called twice; `run` must not be called afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """The precisions that an engine offers on each device of this machine, the best device first.

    `length_multiples` are the multiples, in tokens, that the engine can round text lengths up to, the most
    promising first. It is empty for engines that do not round.
    """

    devices: Mapping[str, tuple[Precision, ...]]
    length_multiples: tuple[int, ...] = ()


class EngineClass(Protocol):
    """The interface of the classes in the table of engines."""

    def load(
        self, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path
    ) -> Engine:
        """Load the model into an engine with the settings of `plan`, for calls on up to `cores` cores.

        Raises `InvalidConfig` for a plan that the engine does not support, and any other `SetupError`.
        """
        ...

    def find_capabilities(self) -> EngineCapabilities:
        """Return the devices and precisions of this machine. Quick; loads no model."""
        ...


def choose_precision(plan: EnginePlan, offered: tuple[Precision, ...]) -> Precision:
    """Return the planned precision, or the first precision of `offered` if none is planned.

    Raises `InvalidConfig` if the planned precision is not offered.
    """
    if plan.precision is None:
        return offered[0]
    if plan.precision not in offered:
        raise InvalidConfig(
            f"The {plan.engine} engine does not compute in {plan.precision} on this machine. It offers "
            f"{', '.join(offered)}."
        )
    return Precision(plan.precision)  # callers compare by identity, and a plan may have a plain string


WARM_UP_TOKENS = (16, 64)
"""The sizes of the calls of a warm-up, in tokens, the smallest first.

Two sizes make a line. Every call corrects it, and longer calls would only delay the start.
"""
# Of the time of the largest call of a warm-up.
LEAST_TOKEN_SHARE = 0.1
# Calls are timed so often at most, if the smaller one seems to have been disturbed.
MOST_ROUNDS = 3
# Noise is negligible in a call that takes this long.
_LONG_S = 0.1


def warm_engine(
    engine: Engine, texts: Sequence[TokenSequence] = (), *, clock: Clock = monotonic
) -> CostModel:
    """Run a small batch in every width, and return the cost of the narrowest width, fitted to two sizes.

    `texts` are those of `Engine.warm_up`.
    """
    narrow, *wider = engine.info.lane_widths
    texts = texts or _make_texts(engine.info.max_tokens)
    counts = [max(1, tokens // len(text)) for text, tokens in zip(texts, WARM_UP_TOKENS, strict=True)]
    if len(texts[0]) * counts[0] == len(texts[1]) * counts[1]:  # long inputs, such as pictures
        counts[1] *= WARM_UP_TOKENS[1] // WARM_UP_TOKENS[0]
    batches = [Batch.of([text] * count) for text, count in zip(texts, counts, strict=True)]
    engine.run(batches[0], width=narrow)  # untimed: the first call reads the weights from disk
    tokens = [len(batch.token_ids) for batch in batches]
    times_s = [_time(engine, batch, narrow, clock) for batch in batches]
    for _ in range(MOST_ROUNDS - 1):
        if _rises(tokens, times_s):
            break
        again_s = [_time(engine, batch, narrow, clock) for batch in batches]
        times_s = [min(pair) for pair in zip(times_s, again_s, strict=True)]
    for width in wider:
        engine.run(batches[0], width=width)
    return fit_cost(tokens, times_s)


def _rises(tokens: Sequence[int], times_s: Sequence[float]) -> bool:
    """Return whether the larger call took longer than the smaller one, by what its tokens take at least."""
    least_s = LEAST_TOKEN_SHARE * times_s[-1] * (tokens[-1] - tokens[0]) / tokens[-1]
    return times_s[-1] - times_s[0] >= least_s


def fit_cost(tokens: Sequence[int], times_s: Sequence[float]) -> CostModel:
    """Fit a straight line to the times of calls of these sizes in tokens, the largest last.

    At least `LEAST_TOKEN_SHARE` of the largest call is due to its tokens, also if a smaller call was
    disturbed and took as long: a model whose tokens seem to cost nothing would never seem to be busy.
    """
    intercept, slope = np.polynomial.polynomial.polyfit(tokens, times_s, 1)
    least = max(LEAST_TOKEN_SHARE * times_s[-1] / tokens[-1], 1e-9)
    if slope >= least:
        return CostModel(fixed_s=max(float(intercept), 0.0), per_token_s=float(slope))
    return CostModel(fixed_s=max(times_s[-1] - least * tokens[-1], 0.0), per_token_s=least)


def _make_texts(longest: int) -> list[TokenSequence]:
    return [TokenSequence.of([0] * min(tokens, longest)) for tokens in WARM_UP_TOKENS]


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
