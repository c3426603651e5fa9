"""Log lines carry the id and figures of a request, and lines of standard error become lines of the log."""

import json
import logging
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest

from vecmill_server.base.settings import LogFormat, LogLevel, ServerSettings
from vecmill_server.telemetry.logs import LogStream, configure_logging, redirect_standard_error


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


def redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect until the end of the test. pytest sets standard error anew before each test."""
    for holder, name in ((sys, "stderr"), (sys, "excepthook"), (threading, "excepthook")):
        monkeypatch.setattr(holder, name, getattr(holder, name))
    redirect_standard_error()


def test_lines_are_logged_when_they_are_complete(caplog: pytest.LogCaptureFixture) -> None:
    stream = LogStream()
    for text in ("one ", "line\n", "\n", "two\nthree\nrest"):
        assert stream.write(text) == len(text)
    assert caplog.messages == ["one line", "two", "three"]
    assert not stream.isatty()


def test_print_and_handlers_of_libraries_reach_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    redirect(monkeypatch)
    library = logging.getLogger("some_library")
    library.addHandler(handler := logging.StreamHandler())
    library.propagate = False
    try:
        library.warning("100%% of %s", "it")
        print("printed", file=sys.stderr)
    finally:
        library.removeHandler(handler)
        library.propagate = True
    assert caplog.messages == ["100% of it", "printed"]


def test_a_traceback_is_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    redirect(monkeypatch)

    def fail() -> None:
        raise ValueError("the cause")

    thread = threading.Thread(target=fail, name="unlucky")
    thread.start()
    thread.join()
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    first, second = caplog.records
    assert "unlucky" in first.getMessage()
    for record in (first, second):
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "the cause"


def test_the_last_text_is_logged_at_the_end_of_the_process() -> None:
    program = (
        "import logging, sys\n"
        "from vecmill_server.telemetry.logs import redirect_standard_error\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "redirect_standard_error()\n"
        "sys.stderr.write('out of memory')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert (ended.stdout, ended.stderr) == ("out of memory\n", "")


def test_a_text_without_an_end_of_line_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    stream = LogStream()
    for percent in range(3):
        stream.write(f"\rloading {percent}%")  # as progress bars do
    assert caplog.messages == ["loading 0%", "loading 1%"]
    for _ in range(10):
        stream.write("dots" * 1_000)
    assert sum(map(len, caplog.messages)) > 30_000
    assert max(map(len, caplog.messages)) < 20_000
