"""Log lines carry the request's id and figures, as text or as JSON."""

import json
import logging
import os
from datetime import UTC, datetime

import pytest

from vecmill_server.base.settings import LogFormat, LogLevel, ServerSettings
from vecmill_server.telemetry.logs import configure_logging


@pytest.fixture
def root() -> logging.Logger:
    """The root logger."""
    return logging.getLogger()


def written(root: logging.Logger, settings: ServerSettings) -> str:
    reader, writer = os.pipe()
    handler = configure_logging(settings, writer)
    assert root.handlers == [handler]
    extra = {"request_id": "the-id", "status": 200, "reason": None, "duration_ms": 1.5}
    logging.getLogger("vecmill.access").info("request", extra=extra)
    logging.getLogger("vecmill.access").debug("detail")
    handler.flush()
    os.close(writer)
    with open(reader, encoding="utf-8") as lines:
        return lines.read()


def test_text_lines_are_for_people(root: logging.Logger) -> None:
    (line,) = written(root, ServerSettings()).splitlines()
    assert line.endswith("INFO vecmill.access request request_id=the-id status=200 duration_ms=1.5")


def test_json_lines_are_for_machines(root: logging.Logger) -> None:
    (line,) = written(root, ServerSettings(log_format=LogFormat.JSON)).splitlines()
    document = json.loads(line)
    assert document["request_id"] == "the-id"
    assert document["level"] == "INFO"
    assert document["status"] == 200


def test_the_level_is_kept(root: logging.Logger) -> None:
    assert written(root, ServerSettings(log_level=LogLevel.ERROR)) == ""
    assert len(written(root, ServerSettings(log_level=LogLevel.DEBUG)).splitlines()) == 2


def test_lines_of_libraries_still_show_the_process(root: logging.Logger) -> None:
    written(root, ServerSettings())
    record = root.makeRecord("torch", logging.WARNING, __file__, 0, "a warning", (), None)
    assert record.process == os.getpid()


@pytest.mark.parametrize("log_format", LogFormat)
def test_times_are_of_rfc_3339(root: logging.Logger, log_format: LogFormat) -> None:
    (line,) = written(root, ServerSettings(log_format=log_format)).splitlines()
    time = json.loads(line)["time"] if log_format is LogFormat.JSON else line.split(" ")[0]
    assert time.endswith("Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()) < 60
