"""Unknown model names: every request is counted, and a hundred names are logged once each."""

import logging

import pytest

from vecmill_server.service.unknown_names import MAX_LOGGED_NAMES, UnknownNames


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vecmill_server.service.unknown_names")
    return caplog


def test_a_name_is_logged_once_and_every_request_is_counted(log: pytest.LogCaptureFixture) -> None:
    requests: list[None] = []
    names = UnknownNames(lambda: requests.append(None))
    for _ in range(3):
        names.add("gpt-none", "a")
    assert len(requests) == 3
    assert [record.getMessage() for record in log.records] == [
        "the model name 'gpt-none' is unknown, so a answers (--alias '*')"
    ]


def test_no_more_than_a_hundred_names_are_logged(log: pytest.LogCaptureFixture) -> None:
    requests: list[None] = []
    names = UnknownNames(lambda: requests.append(None))
    for number in range(3 * MAX_LOGGED_NAMES):
        names.add(f"name-{number}", "a")
    assert len(requests) == 300
    messages = [record.getMessage() for record in log.records]
    assert len(messages) == MAX_LOGGED_NAMES + 1
    assert messages[-1] == "further unknown model names are counted and not logged"


def test_a_hostile_name_is_one_short_line(log: pytest.LogCaptureFixture) -> None:
    names = UnknownNames(lambda: None)
    names.add("a\nb\x1b[31m\u2028" + "x" * 100_000, "a")
    (message,) = [record.getMessage() for record in log.records]
    assert message.isprintable()
    assert len(message) < 250
