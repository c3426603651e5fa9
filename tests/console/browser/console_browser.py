"""A browser on the console, which notes what must not happen: requests to other hosts, errors, violations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATIENCE_MS = 20_000
POLL_MS = 50
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 375, "height": 740}


@dataclass
class ConsoleBrowser:
    """One profile with one page. `faults` is what went wrong so far."""

    url: str
    context: Any
    page: Any
    faults: list[str] = field(default_factory=list)

    def open(self, view: str, *, is_done: str = "main h2") -> Any:
        """Open a view, such as `try/rerank`, and wait for the element `is_done`."""
        self.page.goto(f"{self.url}/#/{view}")
        self.page.reload()  # a new fragment alone loads nothing
        self.page.wait_for_selector(is_done)
        return self.page

    def submit(self) -> None:
        """Send the form of the view, and wait for its result."""
        self.page.click("main form button.main")
        self.page.wait_for_selector("main form button.main:not([aria-busy])")
        self.page.wait_for_selector(".output > div")

    def wait_for_count(self, selector: str, count: int) -> None:
        """Wait until so many elements are there."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_count(count, timeout=PATIENCE_MS)

    def wait_until(self, expression: str, argument: object = None) -> None:
        """Wait until a function of the page returns what is true.

        `wait_for_function` of Playwright evaluates text within the page, which the page's policy forbids.
        """
        for _ in range(0, PATIENCE_MS, POLL_MS):
            if self.page.evaluate(expression, argument):
                return
            self.page.wait_for_timeout(POLL_MS)
        raise AssertionError(f"not true in {PATIENCE_MS} ms: {expression}")

    def texts(self, selector: str) -> list[str]:
        """The visible text of each element."""
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    def rows(self, caption: str) -> list[list[str]]:
        """The cells of the body of a table."""
        table = self.page.locator("table").filter(has=self.page.locator("caption", has_text=caption)).first
        return [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]

    def save(self, button: str) -> bytes:
        """What a button of the page saves as a file."""
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button).click()
        with open(waiting.value.path(), "rb") as file:
            return file.read()

    def snippets(self) -> dict[str, str]:
        """The programs that the view shows, by language."""
        self.page.locator("details.snippets summary").click()
        found = {}
        for radio in self.page.locator("details.snippets input[type=radio]").all():
            radio.check()
            found[str(radio.get_attribute("value"))] = str(self.page.locator(".snippets code").inner_text())
        return found


@contextmanager
def open_browser(
    chromium: Any, url: str, *, allowed: Sequence[str] = (), **settings: Any
) -> Iterator[ConsoleBrowser]:
    """A page in a new profile. At the end, a fault that has no word of `allowed` is an error of the test."""
    context = chromium.new_context(**{"viewport": DESKTOP, "accept_downloads": True, **settings})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    found = ConsoleBrowser(url, context, page)
    own = urlsplit(url).netloc

    def note_request(request: Any) -> None:
        place = urlsplit(request.url)
        if place.scheme not in ("data", "blob") and place.netloc != own:
            found.faults.append(f"a request to {request.url}")

    def note_message(message: Any) -> None:
        if message.type in ("error", "warning"):
            found.faults.append(f"{message.type} in the browser's console: {message.text}")

    page.on("request", note_request)
    page.on("console", note_message)
    page.on("pageerror", lambda error: found.faults.append(f"an uncaught error: {error}"))
    try:
        yield found
        faults = [fault for fault in found.faults if not any(word in fault for word in allowed)]
        assert faults == []
    finally:
        context.close()
