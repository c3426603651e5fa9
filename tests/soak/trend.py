"""The trend of a series of samples: its slope, its noise, and whether it grows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPARKS = "▁▂▃▄▅▆▇█"
# Growth within the second half that is not told from noise: so much of the mean, so many times the noise.
MEAN_SHARE, NOISE_FACTOR = 0.05, 3.0


@dataclass(frozen=True, slots=True)
class Trend:
    """The second half of a series: mean, slope per hour, standard deviation around the line, and growth.

    `growth` is the rise of the line over the second half, `limit` the most that is not a leak.
    """

    name: str
    mean: float
    slope_per_h: float
    noise: float
    growth: float
    limit: float

    @property
    def is_leak(self) -> bool:
        """Whether the series grows by more than the noise explains."""
        return self.growth > self.limit

    def __str__(self) -> str:
        return (
            f"{self.name:<10} mean {self.mean:8.1f}  slope {self.slope_per_h:+8.1f}/h  "
            f"noise {self.noise:6.2f}  growth {self.growth:+7.2f}, limit {self.limit:6.2f}"
        )


def find_trend(name: str, times_s: Sequence[float], values: Sequence[float]) -> Trend:
    """Fit a line to the second half of a series of at least eight samples."""
    assert len(values) >= 8, "too few samples for a trend"
    half = len(values) // 2
    times, found = np.array(times_s[half:]), np.array(values[half:])
    slope, start = np.polyfit(times - times[0], found, 1)
    noise = float(np.std(found - (start + slope * (times - times[0]))))
    growth = float(slope * (times[-1] - times[0]))
    limit = max(MEAN_SHARE * float(found.mean()), NOISE_FACTOR * noise)
    return Trend(name, float(found.mean()), float(slope * 3600), noise, growth, limit)


def draw_sparks(values: Sequence[float], width: int = 60) -> str:
    """Return a line of characters whose heights are the means of `width` parts of a series."""
    means = [float(np.mean(part)) for part in np.array_split(np.array(values), min(width, len(values)))]
    low, high = min(means), max(means)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[round((mean - low) / step)] for mean in means)
