"""What is written to Python's standard error becomes lines of the log."""

import logging
import subprocess
import sys
import threading

import pytest

from vecmill_server.telemetry.log_stream import LogStream, redirect_standard_error


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
        "from vecmill_server.telemetry.log_stream import redirect_standard_error\n"
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
