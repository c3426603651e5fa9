"""The life of the server process, from its start to its exit status, and its signs of life."""

import signal
from enum import IntEnum

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Other servers take these for "open the log again" and the like. A process without a handler would end.
IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


def say_ignored(number: int) -> str:
    """Return the line of the log about one of `IGNORED_SIGNALS`."""
    return f"{signal.Signals(number).name} is ignored: the server does nothing at this signal"


class ExitStatus(IntEnum):
    """The exit status of `vecmill serve`."""

    CLEAN = 0  # everything that was accepted was answered
    LOST = 1  # the server was stopped, and a request was lost
    SETUP = 2  # an option cannot work, or no model can be loaded; raised as `SetupError`
    FAULT = 70  # the watchdog ended the process (EX_SOFTWARE of sysexits.h)


class Silence:
    """A count of ticks of a watcher without a sign of life from a thread or a process.

    A watcher that is stopped itself (SIGSTOP, a paused virtual machine, a sleeping laptop) does not tick, so
    the time in which nothing ran does not count as silence.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._ticks = 0

    def tick(self, *, is_alive: bool) -> bool:
        """Count a tick, and return True if there was no sign of life for `patience` ticks."""
        self._ticks = 0 if is_alive else self._ticks + 1
        return self._ticks >= self._patience
