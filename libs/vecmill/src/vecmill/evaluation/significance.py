"""How certain a mean over queries is: bootstrap intervals, and paired tests by randomisation.

Both draw from a seed, so that the same values give the same figures.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 2_000
SWAPS = 10_000
CONFIDENCE = 0.95
# The numbers that are drawn at a time.
_AT_ONCE = 2**22

_Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and the bounds of its interval, in which 95% of the means of resampled queries are."""

    mean: float
    low: float
    high: float


def estimate_mean(values: _Values, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Return the mean of `values` (queries,) with its percentile bootstrap interval."""
    chance = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[chance.integers(0, len(values), (count, len(values)))].mean(axis=1)
            for count in _portions(resamples, len(values))
        ]
    )
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [outside, 1 - outside])
    return Estimate(float(values.mean()), float(low), float(high))


def find_p_value(values: _Values, others: _Values, *, seed: int = 0, swaps: int = SWAPS) -> float:
    """Return the two-sided p-value of the difference of two means over the same queries.

    It is the share of `swaps` random exchanges of the two values of each query whose difference is at least
    as large, the observed one counted with them (Fisher's randomisation test; Smucker, Allan and Carterette
    2007).
    """
    differences = values - others
    observed = abs(differences.sum())
    # Sums of the same numbers in another order.
    slack = 1e-9 * max(1.0, float(np.abs(differences).sum()))
    chance = np.random.default_rng(seed)
    as_large = 0
    for count in _portions(swaps, len(differences)):
        signs = chance.integers(0, 2, (count, len(differences)), np.int8) * np.int8(2) - np.int8(1)
        as_large += int(np.count_nonzero(np.abs(signs @ differences) >= observed - slack))
    return (1 + as_large) / (1 + swaps)


def _portions(total: int, width: int) -> list[int]:
    """Return how many draws of `width` numbers are made at a time."""
    size = max(1, _AT_ONCE // max(1, width))
    return [min(size, total - at) for at in range(0, total, size)]
