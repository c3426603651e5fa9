"""The waiting work of one model."""

import math
from typing import NamedTuple


class WaitingWork(NamedTuple):
    """The work that waits for the lanes of a model.

    `cost_s` is in core seconds at the speed of the warm-up, which is `slowness` times the present speed.
    `cores` is the number of cores that the lanes use together, `since` when the text came that has waited
    longest, about.
    """

    cost_s: float
    cores: int
    slowness: float = 1.0
    since: float = math.inf
