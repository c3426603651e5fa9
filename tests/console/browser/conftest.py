"""Debian's Chromium, driven by Playwright, and a real server with a model for each view of the console."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.browser.console_browser import ConsoleBrowser, open_browser
from console.browser.console_server import serve_all_tasks
from support.chromium import launch_chromium

MISSING = "needs Debian's package chromium, and Playwright: make console"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder: a browser is no part of `make test`."""
    # A comparison of texts, because pytest asks for every test of the run.
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of a module."""
    with launch_chromium(missing=MISSING) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Any, served: str) -> Iterator[ConsoleBrowser]:
    """A new browser profile on the console. At the end nothing may have gone wrong in it."""
    with open_browser(chromium, served) as found:
        yield found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a model for each view."""
    with serve_all_tasks(tmp_path_factory.mktemp("console")) as url:
        yield url


@pytest.fixture
def api(served: str) -> Iterator[httpx.Client]:
    """The same server without a browser."""
    with httpx.Client(base_url=served, timeout=60) as client:
        yield client
