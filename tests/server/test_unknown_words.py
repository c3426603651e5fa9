"""Unknown names of fields and models come from clients: they are counted, and only so many are shown."""

import logging
import threading

import pytest

from vecmill_server.service.unknown_words import (
    MAX_LOGGED_NAMES,
    MOST_LOGGED,
    UnknownFields,
    UnknownNames,
    list_names,
)
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["encoding_formt"], b"encoding_formt"),
        (["a", "parameters.b-c", "D9"], b"a, parameters.b-c, D9"),
        ([*"abcdefghij"], b"a, b, c, d, e, f, g, h, +2"),
        (["", "ä", "a b", "a\r\nx: y", "ok", "x" * 64, "x" * 65, "a\n"], b"ok, " + b"x" * 64 + b", +6"),
        (["\ud800", "💥"], b"+2"),
    ],
)
def test_the_header_has_eight_plain_names_and_the_number_of_the_others(
    names: list[str], value: bytes
) -> None:
    assert list_names(names) == value


def test_each_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServerMetrics()
    unknown = UnknownFields(metrics)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            unknown.report(["one", "two", "a b"], "embed")
        unknown.report(["one"], "rerank")
    assert [record.args for record in caplog.records] == [("one",), ("two",)]
    found = metrics.registry.get_sample_value
    assert found("vecmill_unknown_fields_total", {"route": "embed"}) == 9
    assert found("vecmill_unknown_fields_total", {"route": "rerank"}) == 1


def test_memory_and_log_do_not_grow_with_the_names(caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownFields(ServerMetrics())
    names = [f"name{number}" for number in range(50 * MOST_LOGGED)]
    threads = [threading.Thread(target=unknown.report, args=(names[at::4], "embed")) for at in range(4)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        unknown.report(["another"], "embed")
    assert len({record.args for record in caplog.records}) == len(caplog.records) == MOST_LOGGED


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vecmill_server.service.unknown_words")
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
