"""What the server answers today, request by request, and that it answers the same tomorrow.

What this keeps. `requests` holds requests of every family, over every route; `configurations` the servers
that they are sent to: with a fake engine and a model for each task, with the real embedded model, and with
each setting that changes answers. `answers` has what came back: the status, all headers, the whole body, and
the metrics in the end. A test for each server sends its requests again and fails at any difference.

What it leaves open is listed in `masks`: the words of messages and descriptions, random ids, times of the
disk, seconds of clocks that nothing holds still. Time itself is held still by `freezing`, the only place with
a patch. Floats may differ by 1e-6, those of the real model by 1e-4, since another processor rounds otherwise.

When to record anew. Whoever changes an answer on purpose runs `make record`, reads the difference in
`answers`, and commits it with the change and the reason for it. A change that only moves code changes nothing
here.

A new request is a line in `requests`; recording adds its answer.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recorded.comparison import differences
from recorded.configurations import CONFIGURATIONS
from recorded.record import FOLDER, read_answers, write_answers
from recorded.serving import METRICS, Configuration, ask_all

ASKED = [(configuration, case) for configuration in CONFIGURATIONS for case in configuration.cases]
MOST_SHOWN = 20


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda configuration: configuration.name)
def test_the_answers_and_metrics_are_the_recorded_ones(configuration: Configuration, tmp_path: Path) -> None:
    recorded, answers = read_answers(configuration), ask_all(configuration, tmp_path)
    unrecorded = [name for name in answers if name not in recorded]
    assert unrecorded == [], "they have no recording: run `make record`"
    requests: dict[str, object] = {case.name: case for case in configuration.cases}
    requests[METRICS] = "GET /metrics, after all other requests"
    found = {
        name: [*differences(recorded[name], answers[name], configuration.tolerance)] for name in requests
    }
    shown = [describe_differences(name, requests[name], places) for name, places in found.items() if places]
    if shown:
        pytest.fail("\n".join(shown), pytrace=False)


def describe_differences(name: str, request: object, places: Sequence[str]) -> str:
    """Say where today's answer differs from the recorded one."""
    shown = "\n  ".join(places[:MOST_SHOWN])
    return f"{name}\n  {request}\n  {shown}\n{len(places)} differences"


def test_no_recording_is_left_over() -> None:
    files = {f"{configuration.name}.jsonl" for configuration in CONFIGURATIONS}
    files |= {case.file for _, case in ASKED if case.file is not None}
    assert {path.name for path in FOLDER.iterdir()} == files
    for configuration in CONFIGURATIONS:
        assert set(read_answers(configuration)) == {METRICS, *(case.name for case in configuration.cases)}


def test_there_is_enough_of_everything() -> None:
    statuses = [
        answer["status"]
        for configuration in CONFIGURATIONS
        for name, answer in read_answers(configuration).items()
        if name != METRICS
    ]
    assert len(statuses) >= 700
    assert sum(status >= 400 for status in statuses) >= 400
    # Of a client's and a server's errors, each that the server knows.
    assert {400, 401, 404, 405, 408, 409, 413, 415, 422, 424, 429, 431, 500, 503, 504} <= set(statuses)


def test_every_described_operation_is_asked_for() -> None:
    tasks = next(configuration for configuration in CONFIGURATIONS if configuration.name == "tasks")
    paths = read_answers(tasks)["docs/description"]["body"]["paths"]
    asked = {(case.method, case.path.partition("?")[0]) for _, case in ASKED} | {("GET", "/metrics")}
    assert [
        (method, path)
        for path, operations in paths.items()
        for method in operations
        if not any(kind == method.upper() and is_path(path, one) for kind, one in asked)
    ] == []


def is_path(template: str, path: str) -> bool:
    """Whether the description's path with `{names}` in it means `path`."""
    return re.fullmatch(re.sub(r"\\{\w+\\}", ".+", re.escape(template)), path) is not None


def test_floats_of_the_real_model_may_differ_by_a_rounding_and_no_more() -> None:
    recorded: Any = {"rows": [[0.12345, 1.0]], "count": 1}
    assert list(differences(recorded, {"rows": [[0.12349, 1.0]], "count": 1}, 1e-4)) == []
    assert list(differences(recorded, {"rows": [[0.1239, 1.0]], "count": 1}, 1e-4)) == [
        "rows > 0 > 0: 0.1239, recorded was 0.12345"
    ]
    assert list(differences(recorded, {"rows": [[0.12345, 1]], "count": 1.0}, 1e-4)) == [
        "count: 1.0, recorded was 1",
        "rows > 0 > 1: 1, recorded was 1.0",
    ]


def test_what_is_written_down_is_read_back(tmp_path: Path) -> None:
    configuration = CONFIGURATIONS[0]
    recorded = read_answers(configuration)
    write_answers(configuration, recorded, tmp_path)
    assert read_answers(configuration, tmp_path) == recorded
