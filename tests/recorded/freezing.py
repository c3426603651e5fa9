"""Time, held still: everything that recordings need of a clock, and the only patches that they need.

Clocks are injected where the server takes one: `build_service` hands `StillClock` to the models and
`unix_now` to the service. What takes none is patched here and nowhere else. Ids are not patched: `masks`
renames them by their shape.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

# 14 November 2023, 22:13:20 UTC, and a quarter of a second, which whole seconds must not round up.
UNIX_NOW = 1_700_000_000.25


def unix_now() -> float:
    """Return the Unix time at which everything is recorded."""
    return UNIX_NOW


class StillClock:
    """A monotonic clock that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


@contextmanager
def frozen_time() -> Iterator[None]:
    """Patch what reads the Unix time by itself, until the block ends.

    A patch belongs here if the server reads a clock that nothing injects. There is one:

    `time.time`  uvicorn's `date` header reads it, and so does the work on batches (`created_at`,
                 `completed_at`), which `assemble_service` hands `time.time` to.
    """
    with mock.patch("time.time", unix_now):
        yield
