"""The clock, which callers pass as a value, so that no test has to wait."""

import time
from typing import Protocol


class Clock(Protocol):
    """A function that returns the seconds since an arbitrary start; the value never decreases."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic
