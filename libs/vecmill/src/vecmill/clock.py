"""Time as a value that can be handed in, so that no test has to wait for it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds from an arbitrary origin, never going back."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic
