"""Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def launch_chromium(*, missing: str) -> Iterator[Any]:
    """Run the browser, without a window, until the context ends.

    Skips the test, with the reason `missing`, if Chromium or Playwright is not installed.
    Asynchronous tests cannot run while Playwright does, so a module should end it.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason=missing)
    program = shutil.which("chromium")
    if program is None:
        pytest.skip(missing)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
