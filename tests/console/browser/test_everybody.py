"""The console with a keyboard alone, with a screen reader, on a phone, in the dark, and with a key."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.browser.console_browser import PHONE, ConsoleBrowser, open_browser
from support.client_packages import ensure_npm
from support.server import live_server
from support.source_tree import ROOT

AXE = ROOT / "tests/console/npm"
VIEWS = {
    "try": "main form",
    "try/rerank": "main form",
    "try/classify": "main form",
    "try/entities": "main form",
    "compare": "main form",
    "models": "article",
    "watch": ".charts canvas",
    "batches": "main form",
}
WITH_RESULTS = ("try", "try/rerank", "try/classify", "try/entities", "compare")
SERIOUS = {"serious", "critical"}
SECRET_TEXT = "zanzibar-marmalade-7731"
FIRST_VIEW_MS = 300
MOST_GROWTH_BYTES = 500_000
# Notes when the first form is in the page.
NOTE_FORM = """
new MutationObserver(() => {
  if (window.formAt === undefined && document.querySelector("main form")) window.formAt = performance.now();
}).observe(document, {childList: true, subtree: true});
"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that finds what keeps people out."""
    return (ensure_npm(AXE) / "axe-core/axe.min.js").read_text("utf-8")


def find_barriers(page: Any, axe: str) -> list[str]:
    """What axe finds serious or critical."""
    # By the debugger, since the page's policy forbids scripts that it does not load itself.
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_nothing_keeps_people_out(chromium: Any, served: str, axe: str, scheme: str, viewport: Any) -> None:
    settings = {"color_scheme": scheme, **({"viewport": viewport} if viewport else {})}
    barriers = {}
    with open_browser(chromium, served, **settings) as browser:
        for view, is_done in VIEWS.items():
            browser.open(view, is_done=is_done)
            if view in WITH_RESULTS:
                browser.submit()
            for details in browser.page.locator("details").all():
                details.evaluate("element => { element.open = true }")
            barriers[view] = find_barriers(browser.page, axe)
            width = browser.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{view} is {width} pixels wider than the window"
    assert {view: found for view, found in barriers.items() if found} == {}


def test_texts_are_compared_with_a_keyboard_alone(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "view"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "texts":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type("one text\nanother text\na third")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("table.heat")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || ''"
            )
        )
    for name in ("Save as CSV", "Save as JSON", "This request in a program"):
        assert name in reached


@contextmanager
def open_with_key(chromium: Any, folder: Path, option: str) -> Iterator[ConsoleBrowser]:
    """A page of a server that requires the key "secret"."""
    with (
        live_server(folder, arguments=[option, "secret"]) as server,
        open_browser(chromium, server.url, allowed=("401",)) as browser,
    ):
        yield browser


def give_key(page: Any, key: str) -> None:
    """Type a key into the dialog that asks for one."""
    page.wait_for_selector("dialog[open]")
    page.fill("dialog input", key)
    page.keyboard.press("Enter")


def test_a_key_is_asked_for_and_kept_for_the_tab_only(chromium: Any, tmp_path: Path) -> None:
    with open_with_key(chromium, tmp_path, "--api-key") as browser:
        page = browser.page
        page.goto(f"{browser.url}/")
        give_key(page, "wrong")
        page.wait_for_selector("text=The server does not accept this key.")
        give_key(page, "secret")
        page.wait_for_selector("main form")
        browser.submit()
        assert "secret" not in page.content()
        other = browser.context.new_page()  # another tab of the same profile
        other.goto(f"{browser.url}/")
        other.wait_for_selector("dialog[open]")
        assert page.evaluate("localStorage.length") == 0


def test_the_only_model_of_a_server_is_measured_but_has_none_to_be_compared_with(
    chromium: Any, tmp_path: Path
) -> None:
    with (
        live_server(tmp_path) as server,
        open_browser(chromium, server.url) as browser,
    ):
        page = browser.open("compare/texts", is_done="main pre")
        assert "There is only " in page.inner_text("main .card")
        page.get_by_role("link", name="Labelled queries").click()
        page.wait_for_selector("main form")
        browser.submit()
        assert len(browser.rows("How well each model finds the right answers")) == 1


def test_a_key_that_no_header_can_carry_is_refused_and_a_view_without_a_key_asks_once(
    chromium: Any, tmp_path: Path
) -> None:
    with open_with_key(chromium, tmp_path, "--metrics-key") as browser:
        page = browser.page
        page.goto(f"{browser.url}/#/watch")
        page.wait_for_selector("dialog label:has-text('Metrics key')")
        assert "--metrics-key" in page.inner_text("dialog")
        give_key(page, "secret\u200b")
        assert page.evaluate("document.querySelector('dialog input').validity.patternMismatch")
        page.clock.install()
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_selector("text=No key was given.")
        page.clock.run_for(10_000)
        assert page.locator("dialog").count() == 0
        page.reload()
        give_key(page, "secret")
        page.wait_for_selector(".charts canvas")


def test_a_text_stays_in_its_tab_until_it_is_cleared_and_nowhere_else(chromium: Any, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    folder = tmp_path / "server"
    folder.mkdir()
    with live_server(folder, arguments=["--log-level", "debug"]) as server:
        context = chromium.browser_type.launch_persistent_context(
            str(profile), executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = context.new_page()
        page.goto(f"{server.url}/")
        page.fill("textarea[name=texts]", f"{SECRET_TEXT}\nb\nc")
        page.click("main form button.main")
        page.wait_for_selector(f"table.heat th[title='{SECRET_TEXT}']")
        page.reload()
        page.wait_for_selector(f"table.heat th[title='{SECRET_TEXT}']")
        assert SECRET_TEXT in page.input_value("textarea[name=texts]")
        other = context.new_page()  # another tab of the same profile
        other.goto(f"{server.url}/")
        other.wait_for_selector("table.heat")
        assert SECRET_TEXT not in other.content()
        assert page.evaluate("localStorage.length") == 0
        page.click("#clear")
        page.wait_for_selector("table.heat th[title='It is sunny outside.']")
        kept = page.evaluate("JSON.stringify(sessionStorage)")
        assert SECRET_TEXT not in kept
        context.close()
        log = server.log.read_bytes()
    assert SECRET_TEXT.encode() not in log


def test_the_first_view_is_there_at_once(chromium: Any, served: str) -> None:
    """From the start of the navigation, in a profile that has nothing of the page."""
    times = []
    for _ in range(7):
        with open_browser(chromium, served) as browser:
            browser.page.add_init_script(NOTE_FORM)
            browser.page.goto(f"{served}/")
            browser.page.wait_for_selector("main form button.main")
            times.append(browser.page.evaluate("window.formAt"))
    print(f"first view after {[round(each) for each in sorted(times)]} ms")
    assert sorted(times)[len(times) // 2] < FIRST_VIEW_MS


def test_a_new_user_sees_which_sentences_are_alike_without_a_click(browser: ConsoleBrowser) -> None:
    page = browser.page
    page.goto(f"{browser.url}/")
    page.wait_for_selector("table.heat")
    assert len(page.input_value("textarea[name=texts]").splitlines()) == 5
    nearest = browser.rows("The nearest pairs")[:2]
    assert {tuple(sorted(pair[:2])) for pair in nearest} == {
        ("How do I reset my password?", "I forgot my login and cannot get in."),
        ("It is sunny outside.", "The weather is lovely today."),
    }
    # Some of it without scrolling.
    box = page.locator("table.heat").bounding_box()
    assert box["y"] + 100 < 900


@pytest.mark.parametrize(
    ("module", "view", "selector"),
    [
        ("models.js", "models", ".problem"),
        ("similarity_result.js", "try", ".output .problem"),
    ],
)
def test_a_part_of_the_page_that_does_not_come_is_told_with_what_to_do(
    chromium: Any, served: str, module: str, view: str, selector: str
) -> None:
    with open_browser(chromium, served) as browser:
        browser.page.route(f"**/{module}", lambda route: route.abort())
        browser.open(view, is_done=selector)
        (told,) = browser.texts(selector)
        assert told == "The server did not send a part of this page. Reload the page when it answers."
        assert any(module in fault for fault in browser.faults)
        browser.faults.clear()


def test_a_view_that_stays_open_does_not_grow(browser: ConsoleBrowser) -> None:
    """A poll every 20 ms instead of every 2 s: the charts are full after 300."""
    page = browser.page
    page.add_init_script("const later = setTimeout; window.setTimeout = (call, ms) => later(call, ms / 100);")
    debugger = browser.context.new_cdp_session(page)
    browser.open("watch", is_done=".charts canvas")
    heaps = []
    for polls in (400, 400, 400):
        for _ in range(polls):
            with page.expect_response("**/metrics"):
                pass
        debugger.send("HeapProfiler.collectGarbage")
        heaps.append(debugger.send("Runtime.getHeapUsage")["usedSize"])
    print(f"heap after 400, 800 and 1,200 polls: {[round(each / 1e6, 2) for each in heaps]} MB")
    assert heaps[2] - heaps[0] < MOST_GROWTH_BYTES
