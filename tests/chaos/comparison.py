"""The latencies of two servers that were asked in turn, one with and one without a burden, compared.

How it works. Both servers run on the same machine at the same time, so its noise meets both. The median and
the slowest requests of a few hundred still vary. Therefore the comparison also tells how probable so large a
rise is by chance: if the burden costs nothing, the two latencies of each pair can be exchanged. Exchanging
pairs at random many times shows the rises that chance gives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.values.aliases import FloatArray

SLOWEST = 0.1
EXCHANGES = 2_000
SEED = 20_270
# A rise that is no noise, in a test of a second.
LARGE_RATIO, SMALL_CHANCE = 1.5, 0.001


@dataclass(frozen=True, slots=True)
class Rise:
    """A statistic of the latencies with the burden, divided by that without it.

    `chance` is the probability of a ratio that is at least as large if the burden costs nothing.
    """

    ratio: float
    chance: float

    @property
    def is_certain(self) -> bool:
        """Whether the burden costs something, on a machine however busy."""
        return self.ratio > LARGE_RATIO and self.chance < SMALL_CHANCE


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rise of the median, and of the mean of the slowest tenth."""

    median: Rise
    slowest: Rise

    @property
    def is_slower(self) -> bool:
        """Whether the burden costs something: a little for all requests, or much for some."""
        return self.median.is_certain or self.slowest.is_certain


def compare(burdened_s: Sequence[float], control_s: Sequence[float]) -> Comparison:
    """Compare latencies of two servers, where those at the same place were measured next to each other."""
    burdened, control = np.array(burdened_s)[None], np.array(control_s)[None]
    is_exchanged = np.random.default_rng(SEED).random((EXCHANGES, burdened.shape[1])) < 0.5
    exchanged = np.where(is_exchanged, control, burdened), np.where(is_exchanged, burdened, control)

    def rise(statistic: Callable[[FloatArray], FloatArray]) -> Rise:
        ratio = float(statistic(burdened)[0] / statistic(control)[0])
        ratios = statistic(exchanged[0]) / statistic(exchanged[1])
        return Rise(ratio, float((1 + np.sum(ratios >= ratio)) / (1 + EXCHANGES)))

    return Comparison(rise(_median), rise(_slowest))


def _median(latencies_s: FloatArray) -> FloatArray:
    """Return the median of each row of (runs, requests)."""
    median: FloatArray = np.median(latencies_s, axis=1)
    return median


def _slowest(latencies_s: FloatArray) -> FloatArray:
    """Return the mean of the slowest tenth of each row of (runs, requests)."""
    count = max(1, int(SLOWEST * latencies_s.shape[1]))
    slowest: FloatArray = np.partition(latencies_s, -count, axis=1)[:, -count:].mean(axis=1)
    return slowest
