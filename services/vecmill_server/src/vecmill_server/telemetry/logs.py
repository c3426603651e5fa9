"""The log on standard error, as text or JSON, with times of RFC 3339 and without any text of a request."""

import logging
import os
import select
import time
from contextlib import suppress

import click
from pythonjsonlogger.orjson import OrjsonFormatter

from vecmill_server.base.settings import LogFormat, ServerSettings
from vecmill_server.telemetry.line_writer import MAX_LINES, LineWriter

logger = logging.getLogger(__name__)

STANDARD_ERROR = 2
ACCESS_LOG = "vecmill.access"  # the name of the logger of requests

# The extra fields of a log record, in the order of the text format.
_FIELDS = (
    *("request_id", "trace_id", "client", "method", "route", "status"),
    *("duration_ms", "texts", "tokens", "reason"),
)


class TextFormatter(logging.Formatter):
    """The text format: `time level logger message key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        values = record.__dict__
        extras = [f"{name}={values[name]}" for name in _FIELDS if values.get(name) is not None]
        return " ".join([line, *extras]) if extras else line


class LogHandler(logging.Handler):
    """A log handler that never waits for whoever reads the log: see `line_writer`."""

    def __init__(
        self, formatter: logging.Formatter, fd: int = STANDARD_ERROR, *, max_lines: int = MAX_LINES
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._writer = LineWriter(fd, self._report_dropped, max_lines=max_lines)
        self._unformatted = 0

    @property
    def dropped(self) -> int:
        """The number of log lines that were dropped so far."""
        return self._writer.dropped + self._unformatted

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # the log must not stop what it reports about
            self._unformatted += 1
        else:
            self._writer.write(line, may_wait=record.name == ACCESS_LOG)

    def flush(self) -> None:
        """Wait until all lines are written, at most `line_writer.FLUSH_S`. `logging` calls this at exit."""
        self._writer.flush()

    def _report_dropped(self, lines: int) -> str:
        text = "%d log lines were dropped, because standard error was not read fast enough"
        return self.format(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (lines,), exc_info=None)
        )


def configure_logging(settings: ServerSettings, fd: int = STANDARD_ERROR) -> LogHandler:
    """Send the log of this process, and Python's warnings, to `fd`, as `settings` say; return its handler."""
    handler = LogHandler(_formatter(settings.log_format), fd)
    # No line shows these, and to find them takes half of the time of a record. torch's own lines show the
    # process.
    logging.logThreads = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    # Otherwise Python would write a warning to standard error itself, and wait for the reader.
    logging.captureWarnings(True)
    # The hub's client logs every request.
    for library in ("httpx2", "httpcore2", "filelock"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # uvicorn logs every start, stop and malformed request, which our own lines and metrics already cover.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return handler


def adopt_hub_log() -> None:
    """Let the warnings of the hub's client appear in the log only, not on standard error a second time."""
    import huggingface_hub  # which adds a handler

    logging.getLogger(huggingface_hub.__name__).handlers.clear()


def flush_log() -> None:
    """Wait until all lines of the log are written, for a limited time."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def report_setup_error(message: str, log_format: LogFormat) -> None:
    """Print an error that ends the start: as a log line in JSON, and as a sentence in the text format."""
    if log_format is LogFormat.JSON:
        logger.critical("%s", message)
    else:
        click.ClickException(message).show()


def write_warning(name: str, message: str, log_format: LogFormat) -> None:
    """Write one warning of the logger `name` to standard error without a thread, or drop the warning.

    The warning is dropped if standard error has no room, because its reader may have stopped.
    """
    record = logging.LogRecord(name, logging.WARNING, __file__, 0, message, None, exc_info=None)
    line = _formatter(log_format).format(record) + "\n"
    with suppress(OSError):
        if select.select((), (STANDARD_ERROR,), (), 0)[1]:
            os.write(STANDARD_ERROR, line.encode("utf-8", "backslashreplace"))


def _formatter(log_format: LogFormat) -> logging.Formatter:
    formatter: logging.Formatter
    if log_format is LogFormat.JSON:
        formatter = OrjsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    else:
        formatter = TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    # Times such as 2026-01-31T23:59:59.250Z.
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return formatter
