"""Run tests with the marker `alone` while no other worker runs a test.

Workers share the cores of the machine. A promise about a server under load that a deadline judges can be kept
only if the machine does not suddenly become several times slower, as it does when another worker begins to
compute.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold the turn of one test among the workers that share `folder`."""
    with (folder / "queue.lock").open("a") as queue, (folder / "turn.lock").open("a") as held:
        # Who waits for the turn holds the queue. So a test that must be alone is not passed by the next ones.
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
