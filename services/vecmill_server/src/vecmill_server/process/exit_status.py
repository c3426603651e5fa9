"""The exit statuses of `vecmill serve`."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of the server process."""

    CLEAN = 0  # everything that was accepted was answered
    LOST = 1  # the server was stopped, and a request was lost
    SETUP = 2  # an option cannot work, or no model can be loaded; raised as `SetupError`
    FAULT = 70  # the watchdog ended the process (EX_SOFTWARE of sysexits.h)
