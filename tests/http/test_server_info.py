"""/metrics has the versions of the build, what is served, and the figures of the process."""

import platform
from importlib.metadata import version

import pytest

from support.http_server import MODEL, HttpServer
from vecmill_server import __version__


def test_the_build_is_named(server: HttpServer) -> None:
    labels = {"version": __version__, "library": version("vecmill"), "python": platform.python_version()}
    assert server.metric("vecmill_build_info", **labels) == 1


def test_the_engine_of_each_model_is_named(server: HttpServer) -> None:
    labels = {"model": MODEL, "task": "embed", "engine": "fake", "precision": "exact", "device": "none"}
    assert server.metric("vecmill_model_info", **labels) == 1


@pytest.mark.linux
def test_the_process_has_the_metrics_that_dashboards_know(server: HttpServer) -> None:
    page = server.client.get("/metrics").text
    for name in (
        "resident_memory_bytes",
        "virtual_memory_bytes",
        "start_time_seconds",
        "open_fds",
        "max_fds",
    ):
        assert f"\nprocess_{name} " in page
    assert "\nprocess_cpu_seconds_total " in page
