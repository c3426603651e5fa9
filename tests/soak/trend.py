"""The trend of a series of samples: its slope, its noise, and whether it grows.

How a leak is told from warmth. A process that is asked to do more at once than before takes more memory, and
keeps the memory for the next time. Its memory is a staircase: flat for minutes, and a step at each new peak.
A leak is never flat. So the second half of a long series is cut into parts, and a leak is what grows in every
part. The medians of the first and last tenth of a part tell its growth, so that single samples do not count.
In the first minutes everything grows, so a short series is judged by its growth as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]

SPARKS = "▁▂▃▄▅▆▇█"
# In a short series: growth that is not told from noise, so much of the mean and so many times the noise.
MEAN_SHARE, NOISE_FACTOR = 0.05, 3.0
# In a long series: the parts of the second half, and the growth of a part that is not told from noise: so
# much of the mean, and the standard deviation of a difference of two medians, which one part in six exceeds.
LONG_S, PARTS, PART_SHARE = 600.0, 5, 0.001


@dataclass(frozen=True, slots=True)
class Trend:
    """The second half of a series: mean, slope per hour, standard deviation around the line, and growth.

    `growth` is the rise of the line over the second half. In a long series, `least_part` is the least rise of
    any part of the second half, otherwise `None`. `limit` is the most rise of either that is not a leak.
    """

    name: str
    mean: float
    slope_per_h: float
    noise: float
    growth: float
    limit: float
    least_part: float | None = None

    @property
    def is_leak(self) -> bool:
        """Whether the series grows by more than the noise explains."""
        return (self.growth if self.least_part is None else self.least_part) > self.limit

    def __str__(self) -> str:
        part = "" if self.least_part is None else f"  least growth of a part {self.least_part:+.2f}"
        return (
            f"{self.name:<10} mean {self.mean:8.1f}  slope {self.slope_per_h:+8.1f}/h  "
            f"noise {self.noise:6.2f}  growth {self.growth:+7.2f}{part}, limit {self.limit:6.2f}"
        )


def find_trend(name: str, times_s: Sequence[float], values: Sequence[float]) -> Trend:
    """Fit a line to the second half of a series of at least eight samples."""
    assert len(values) >= 8, "too few samples for a trend"
    half = len(values) // 2
    times, found = np.array(times_s[half:]), np.array(values[half:])
    slope, start = np.polyfit(times - times[0], found, 1)
    noise = float(np.std(found - (start + slope * (times - times[0]))))
    growth = float(slope * (times[-1] - times[0]))
    trend = Trend(name, float(found.mean()), float(slope * 3600), noise, growth, 0.0)
    if times[-1] - times[0] < LONG_S:
        return replace(trend, limit=max(MEAN_SHARE * trend.mean, NOISE_FACTOR * noise))
    parts = np.array_split(found, PARTS)
    blur = 1.25 * float(np.median([_noise_of(part) for part in parts])) * (2 / _tenth(parts[0])) ** 0.5
    limit = max(PART_SHARE * trend.mean, blur)
    return replace(trend, limit=limit, least_part=min(map(_rise, parts)))


def _tenth(part: Samples) -> int:
    return max(1, len(part) // 10)


def _rise(part: Samples) -> float:
    tenth = _tenth(part)
    return float(np.median(part[-tenth:]) - np.median(part[:tenth]))


def _noise_of(part: Samples) -> float:
    times = np.arange(len(part))
    return float(np.std(part - np.polyval(np.polyfit(times, part, 1), times)))


def draw_sparks(values: Sequence[float], width: int = 60) -> str:
    """Return a line of characters whose heights are the means of `width` parts of a series."""
    means = [float(np.mean(part)) for part in np.array_split(np.array(values), min(width, len(values)))]
    low, high = min(means), max(means)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[round((mean - low) / step)] for mean in means)
