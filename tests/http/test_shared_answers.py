"""Answers that take long to write are written once for all who ask, in a thread of their own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.http_server import serve_in_thread
from vecmill_server import app
from vecmill_server.app.routes import console
from vecmill_server.app.routes.console import report_model


class Calls:
    """The threads in which a function was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.threads: list[str] = []
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        return self._function(*arguments)


@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize(
    ("path", "module", "name", "thread"),
    [
        ("/openapi.json", app, "describe_routes", "vecmill-openapi"),
        ("/console/models.json", console, "report_model", "vecmill-reports"),
    ],
)
def test_an_answer_is_written_once_for_all_who_ask(
    path: str, module: Any, name: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(getattr(module, name))
    monkeypatch.setattr(module, name, calls)
    with serve_in_thread(page_clock=lambda: 0.0) as server, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.client.get(path), range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert calls.threads == [thread]


def test_a_report_on_the_models_is_a_second_old_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(report_model)
    monkeypatch.setattr(console, "report_model", calls)
    now = [0.0]
    with serve_in_thread(page_clock=lambda: now[0]) as server:
        for now[0] in (0.0, 0.5, 0.99, 1.0, 1.5, 2.0):
            assert server.client.get("/console/models.json").status_code == 200
    assert len(calls.threads) == 3
