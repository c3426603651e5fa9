"""Names of unknown fields come from clients: only plain ones are shown, and only so many."""

import logging
import threading

import pytest

from vecmill_server.service.unknown_fields import MOST_LOGGED, UnknownFields, list_names
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
