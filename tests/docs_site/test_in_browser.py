"""The site that `make docs` built is found through, and read, on a desktop and a phone, without a network."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from console.browser.console_browser import DESKTOP, PHONE, ConsoleBrowser, open_browser
from docs_site.build_site import FOLDER
from support.chromium import launch_chromium

MISSING = "needs Debian's package chromium, Playwright and the built site: make docs-browser"
PREFIX = "project"  # code hosts serve the site of a project below its name
# A diagram that was made smaller to fit is no higher than this, and cannot be read.
DRAWN_PX = 200
WIDTHS = {"desktop": DESKTOP, "phone": PHONE}

pytestmark = pytest.mark.full


class QuietHandler(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the built site."""
    if not (FOLDER / "site/index.html").is_file():
        pytest.skip(MISSING)
    root = tmp_path_factory.mktemp("root")
    (root / PREFIX).symlink_to(FOLDER / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{PREFIX}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of this module."""
    with launch_chromium(missing=MISSING) as browser:
        yield browser


@pytest.fixture(params=WIDTHS)
def browser(chromium: Any, site: str, request: pytest.FixtureRequest) -> Iterator[ConsoleBrowser]:
    """A new browser profile. A request to another host, or an error of a script, is an error of the test."""
    with open_browser(chromium, site, viewport=WIDTHS[request.param]) as found:
        yield found


def search(browser: ConsoleBrowser, words: str) -> Any:
    """Search from the first page. Return the links to the results."""
    browser.page.goto(f"{browser.url}/")
    browser.page.locator("button.md-search__button, label[for=__search]").filter(visible=True).click()
    browser.page.get_by_role("combobox").fill(words)
    results = browser.page.get_by_role("option")
    results.first.wait_for()
    return results


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("lame duck", "/operations/"),
        ("vecmill_queue_seconds", "/metrics/"),
        ("chunk-overlap", "/reference/options/"),
        ("SyncMill.embed", "/reference/library/"),
    ],
)
def test_search_leads_to_the_page(browser: ConsoleBrowser, words: str, place: str) -> None:
    addresses = [str(link.get_attribute("href")) for link in search(browser, words).all()]
    address = next((found for found in addresses if place in found), None)
    assert address, f"{place} is not in {addresses}"
    browser.page.goto(address)
    fragment = urlsplit(address).fragment
    assert not fragment or browser.page.locator(f"[id='{fragment}']").count() == 1


def test_diagrams_are_drawn(browser: ConsoleBrowser) -> None:
    browser.page.goto(f"{browser.url}/contributing/architecture/")
    diagram = browser.page.locator(".mermaid").first  # its drawing is in a closed shadow root
    diagram.wait_for()
    assert diagram.bounding_box()["height"] > DRAWN_PX


def test_no_page_is_wider_than_the_screen(browser: ConsoleBrowser) -> None:
    wide = []
    for path in sorted(Path(FOLDER / "site").rglob("index.html")):
        place = path.parent.relative_to(FOLDER / "site")
        browser.page.goto(f"{browser.url}/{place}/", wait_until="load")
        excess = browser.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if excess > 0:
            wide.append(f"{place}: {excess} pixels")
    assert wide == []
