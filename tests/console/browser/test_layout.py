"""Every view fits its window, with few, many and very long texts: nothing is too wide, broken or covered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.browser.console_browser import ConsoleBrowser, open_browser

WIDTHS = (390, 1280, 1920)
TOPICS = (
    "The cat {} on the sofa while it rained outside the whole long afternoon and night.",
    "Shares of the company {} after the report on Monday.",
    "Photosynthesis {} energy of light into sugar.",
    "The striker {} two goals in the second half of the match against the neighbours from the other town.",
)
WORDS = ("slept", "fell", "turned", "scored", "rested", "rose", "moved", "shot", "dozed")


def make_texts(count: int) -> list[str]:
    return [f"{TOPICS[number % 4].format(WORDS[number % 9])} {number}" for number in range(count)]


LONG = " ".join(f"word{number % 700}" for number in range(5_000))
UNBROKEN = "https://example.org/" + "path" * 80
SETS = {
    "2": make_texts(2),
    "12": make_texts(12),
    "60": make_texts(60),
    "500": make_texts(500),
    "long": [LONG, UNBROKEN, *make_texts(3)],
}
# The views with texts, and the name of their text area.
FORMS = {
    "try": "texts",
    "try/rerank": "documents",
    "try/classify": "texts",
    "try/entities": "texts",
    "compare/texts": "texts",
}
OTHERS = {"compare/queries": "form", "models": "article", "watch": ".charts canvas", "batches": "form"}

FIND_FAULTS = Path(__file__).with_name("layout_faults.js").read_text("utf-8")


@pytest.fixture(scope="module", params=WIDTHS)
def window(request: pytest.FixtureRequest, chromium: Any, served: str) -> Iterator[ConsoleBrowser]:
    scheme = "dark" if request.param == 1280 else "light"
    viewport = {"width": request.param, "height": 900}
    with open_browser(chromium, served, viewport=viewport, color_scheme=scheme) as browser:
        yield browser


@pytest.mark.parametrize("texts", SETS)
@pytest.mark.parametrize("view", FORMS)
def test_results_fit_their_window(view: str, texts: str, window: ConsoleBrowser) -> None:
    if view == "compare/texts" and texts == "2":
        pytest.skip("two texts have no pairs to compare")
    window.open(view, is_done="main form")
    window.page.fill(f"textarea[name={FORMS[view]}]", "\n".join(SETS[texts]))
    window.submit()
    for details in window.page.locator(".groups details, .snippets").all():
        details.evaluate("element => { element.open = true }")
    # The buttons that show the rest of a text appear with the next frame.
    window.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert window.page.evaluate(FIND_FAULTS) == []


@pytest.mark.parametrize("texts", ["60", "500"])
def test_a_cell_of_a_heat_map_can_be_touched(texts: str, window: ConsoleBrowser) -> None:
    window.open("try", is_done="main form")
    window.page.fill("textarea[name=texts]", "\n".join(SETS[texts]))
    window.submit()
    shown = window.page.locator("table.heat tbody tr").first.locator("td:visible")
    assert shown.count() == (24 if window.page.viewport_size["width"] == 390 else 60)
    assert shown.nth(1).bounding_box()["width"] >= 9


@pytest.mark.parametrize("view", OTHERS)
def test_other_views_fit_their_window(view: str, window: ConsoleBrowser) -> None:
    window.open(view, is_done=f"main {OTHERS[view]}")
    assert window.page.evaluate(FIND_FAULTS) == []


def test_the_page_of_the_api_fits_its_window(window: ConsoleBrowser) -> None:
    page = window.page
    page.goto(f"{window.url}/docs")
    page.wait_for_selector(".opblock-tag")
    page.fill(".operation-filter-input", "cohere rerank")
    page.locator(".opblock-summary").first.click()
    page.wait_for_selector("button.execute")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.locator("tr.response .model-example:visible").count() <= 2  # of the answer, and of one error
