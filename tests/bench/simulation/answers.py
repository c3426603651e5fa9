"""The answers that the clients of a run got, real or simulated."""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Answers:
    """The latencies of the requests that were answered in `seconds`, by stream, and the number refused."""

    seconds: float = 0.0
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    refused: int = 0

    @property
    def requests(self) -> int:
        """The number of requests that were answered."""
        return sum(map(len, self.latencies_s.values()))

    @property
    def per_second(self) -> float:
        """The requests that were answered in a second."""
        return self.requests / self.seconds

    def percentile_s(self, percent: int) -> float:
        """Return a percentile of all latencies."""
        values = [one for found in self.latencies_s.values() for one in found]
        return float(np.percentile(values, percent)) if values else math.nan
