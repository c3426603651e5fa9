"""Log lines on standard error, times in UTC: text for people, JSON for machines. No text of a request."""

import logging
import time

from pythonjsonlogger.orjson import OrjsonFormatter

from vecmill_server.settings import LogFormat, ServerSettings

# What a record may carry beside its message, in the order in which text lines show it.
_FIELDS = ("request_id", "method", "route", "status", "duration_ms", "texts", "tokens", "reason")


class TextFormatter(logging.Formatter):
    """`time level logger message key=value ...`"""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        values = record.__dict__
        extras = [f"{name}={values[name]}" for name in _FIELDS if values.get(name) is not None]
        return " ".join([line, *extras]) if extras else line


def configure_logging(settings: ServerSettings) -> None:
    """Send everything that this process logs to standard error, as `settings` say."""
    handler = logging.StreamHandler()
    formatter = _formatter(settings.log_format)
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    # uvicorn tells of every start, stop and malformed request; our own lines and metrics do already.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def _formatter(log_format: LogFormat) -> logging.Formatter:
    if log_format is LogFormat.JSON:
        return OrjsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    return TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
