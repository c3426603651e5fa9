"""The redirection of Python's standard error into the log, so that each line there has the format of the log.

Libraries write warnings with handlers and formats of their own, and the interpreter writes the tracebacks of
threads. Lines that native libraries and the watchdog write to the file descriptor are not redirected.
"""

import atexit
import io
import logging
import sys
import threading
from types import TracebackType

from vecmill_server.telemetry.logs import STANDARD_ERROR

logger = logging.getLogger(__name__)

# Text without the end of a line is logged when it is longer, so that memory stays bounded.
MOST_CHARACTERS = 10_000


class LogStream(io.TextIOBase):
    """A text stream whose lines become warnings in the log.

    A carriage return ends a line too, since progress bars write nothing else between their states.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STANDARD_ERROR

    def write(self, text: str) -> int:
        with self._lock:
            *lines, rest = (self._begun + text).replace("\r", "\n").split("\n")
            if len(rest) > MOST_CHARACTERS:
                lines.append(rest)
                rest = ""
            self._begun = rest
        for line in lines:
            if line.strip():
                logger.warning("%s", line.rstrip())
        return len(text)

    def end_line(self) -> None:
        """Log the text that has no end of a line yet."""
        self.write("\n")


def redirect_standard_error() -> None:
    """Send what is written to `sys.stderr`, and the tracebacks of the interpreter, to the log."""
    stream = sys.stderr = LogStream()
    atexit.register(stream.end_line)  # before `logging` ends, which registered earlier
    sys.excepthook = _log_exception
    threading.excepthook = _log_thread_exception


def _log_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logger.critical("the process ends because of an unexpected error", exc_info=(kind, error, traceback))


def _log_thread_exception(hook: threading.ExceptHookArgs) -> None:
    name = None if hook.thread is None else hook.thread.name
    error = hook.exc_value or hook.exc_type()
    logger.error("the thread %s ends because of an error", name, exc_info=error)
