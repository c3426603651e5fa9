"""The signs of life of a thread or a process, counted in ticks of whoever watches it.

A watcher that is stopped itself (SIGSTOP, a paused virtual machine, a sleeping laptop) does not tick, so the
time in which nothing ran does not count as silence.
"""

from pathlib import Path


class Silence:
    """A count of ticks without a sign of life."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._ticks = 0

    def tick(self, *, is_alive: bool) -> bool:
        """Count a tick, and return True if there was no sign of life for `patience` ticks."""
        self._ticks = 0 if is_alive else self._ticks + 1
        return self._ticks >= self._patience


def is_traced(pid: int | str = "self") -> bool:
    """Return True if a debugger such as gdb is attached to this process; always False if not on Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # not Linux, or the process has ended
        return False
    return "\nTracerPid:\t0\n" not in status
