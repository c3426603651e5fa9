"""Writes a screenshot of each view of the console, light and dark, to docs/console.

    make console-screenshots

They are for people to look at; no test compares them.
"""

import tempfile
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from console.browser.console_browser import ConsoleBrowser, open_browser
from console.browser.console_server import serve_all_tasks
from support.batches import create_batch, request_line
from support.http_server import MODEL
from support.source_tree import ROOT
from support.texts import mixed_texts

FOLDER = ROOT / "docs/console"
WATCHED_S = 20
SEED = 3


def main() -> None:
    """Write the screenshots."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_all_tasks(Path(folder)) as url,
        sync_playwright() as driver,
    ):
        chromium = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        with httpx.Client(base_url=url, timeout=60) as client:
            create_batch(client, [request_line(str(n), {"input": "a", "model": MODEL}) for n in range(40)])
        for scheme in ("light", "dark"):
            with open_browser(chromium, url, color_scheme=scheme) as browser:
                for view in ("try", "try/rerank", "try/classify", "try/entities", "compare"):
                    browser.open(view, is_done="main form")
                    browser.submit()
                    save(browser, view, scheme)
                for view, is_done in (("models", "article"), ("batches", "progress")):
                    browser.open(view, is_done=is_done)
                    save(browser, view, scheme)
                watch(browser, url)
                save(browser, "watch", scheme)
                browser.page.goto(f"{url}/docs")
                browser.page.wait_for_selector(".opblock-tag")
                save(browser, "api", scheme)


def save(browser: ConsoleBrowser, view: str, scheme: str) -> None:
    """Write the screenshot of the whole page."""
    path = FOLDER / f"{view.replace('/', '-')}-{scheme}.png"
    with Image.open(BytesIO(browser.page.screenshot(full_page=True))) as picture:
        # A palette makes the files a third as large.
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"written to {path.relative_to(ROOT)}")


def watch(browser: ConsoleBrowser, url: str) -> None:
    """Open the view of the load while clients send requests."""
    browser.open("watch", is_done=".charts figure")
    stop = threading.Event()
    clients = [threading.Thread(target=send_requests, args=(url, number, stop)) for number in range(8)]
    for client in clients:
        client.start()
    browser.page.wait_for_timeout(WATCHED_S * 1000)
    stop.set()
    for client in clients:
        client.join()


def send_requests(url: str, number: int, stop: Any) -> None:
    """Send one request after the other until `stop` is set."""
    texts = mixed_texts(SEED + number, 64)
    with httpx.Client(base_url=url, timeout=60) as client:
        place = 0
        while not stop.is_set():
            client.post("/v1/embeddings", json={"model": MODEL, "input": texts[place % len(texts)]})
            place += 1


if __name__ == "__main__":
    main()
