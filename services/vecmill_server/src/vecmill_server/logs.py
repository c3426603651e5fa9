"""The log on standard error, as text or JSON, with times in UTC and without any text of a request."""

import logging
import time

from pythonjsonlogger.orjson import OrjsonFormatter

from vecmill_server.settings import LogFormat, ServerSettings

# The extra fields of a log record, in the order of the text format.
_FIELDS = ("request_id", "method", "route", "status", "duration_ms", "texts", "tokens", "reason")


class TextFormatter(logging.Formatter):
    """The text format: `time level logger message key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        values = record.__dict__
        extras = [f"{name}={values[name]}" for name in _FIELDS if values.get(name) is not None]
        return " ".join([line, *extras]) if extras else line


def configure_logging(settings: ServerSettings) -> None:
    """Send the log of this process to standard error, in the format and at the level in `settings`."""
    handler = logging.StreamHandler()
    formatter = _formatter(settings.log_format)
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    # uvicorn logs every start, stop and malformed request, which our own lines and metrics already cover.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _formatter(log_format: LogFormat) -> logging.Formatter:
    if log_format is LogFormat.JSON:
        return OrjsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    return TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
