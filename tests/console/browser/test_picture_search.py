"""Pictures in the console: dropped or chosen, found by words, on the map, and sent to this server alone."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from console.browser.console_browser import PHONE, ConsoleBrowser, open_browser
from console.browser.test_everybody import find_barriers
from console.browser.test_layout import FIND_FAULTS
from support.client_packages import ensure_npm
from support.drawn_pictures import write_picture
from support.drawn_shapes import draw_shapes
from support.server import live_server
from support.source_tree import ROOT
from support.two_towers import save_clip
from vecmill.values.aliases import FloatArray

WORDS = ["a red circle", "a blue square"]
SHAPES = draw_shapes(12)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a tiny CLIP."""
    folder = tmp_path_factory.mktemp("pictures")
    model = save_clip(folder / "clip")
    with live_server(folder, arguments=[str(model), "--max-body-bytes", "600000"]) as server:
        yield server.url


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("files")
    for name, data in SHAPES.items():
        (folder / f"{name}.png").write_bytes(data)
    return sorted(folder.iterdir())


def embed(api: httpx.Client, inputs: list[Any]) -> FloatArray:
    answer = api.post("/v1/embeddings", json={"input": inputs})
    assert answer.status_code == 200, answer.text
    return np.array([each["embedding"] for each in answer.json()["data"]], np.float32)


def similarities(api: httpx.Client, files: list[Path], words: list[str]) -> FloatArray:
    """The cosines of words (rows) and pictures, by the API."""
    inputs = [{"image": base64.b64encode(path.read_bytes()).decode()} for path in files]
    one, other = embed(api, words), embed(api, inputs)
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return one @ other.T


def choose(browser: ConsoleBrowser, files: list[Path], words: list[str] = WORDS) -> Any:
    page = browser.open("try/pictures", is_done="main form")
    page.fill("textarea[name=words]", "\n".join(words))
    page.set_input_files("input[type=file][aria-label='Files with pictures']", files)
    page.wait_for_selector(f".drop [role=status]:text-matches('^{len(files)} pictures')")
    return page


def names(browser: ConsoleBrowser, selector: str) -> list[str]:
    """The files of the pictures of a list, in its order."""
    return [
        str(each.get_attribute("title")) for each in browser.page.locator(f"{selector} button.picture").all()
    ]


def test_words_find_pictures_and_pictures_find_words(
    browser: ConsoleBrowser, api: httpx.Client, files: list[Path]
) -> None:
    page = choose(browser, files)
    browser.submit()
    assert f"{len(files)} pictures, 24 numbers each" in browser.texts(".summary")[0]
    found = similarities(api, files, [*WORDS, "a green triangle"])
    for row, word in enumerate(WORDS):
        listed = page.locator("table", has_text="Pictures for the words").locator("tbody tr").nth(row)
        assert listed.locator(".long-text span").inner_text() == word
        shown = [str(each.get_attribute("title")) for each in listed.locator("button.picture").all()]
        assert shown == [files[index].name for index in (-found[row]).argsort(kind="stable")[:4]]
    page.fill("input[type=search]", "a green triangle")
    page.keyboard.press("Enter")
    page.wait_for_selector(".search h4")
    best = (-found[2]).argsort(kind="stable")[:12]
    assert names(browser, ".search") == [files[index].name for index in best]
    scores = [float(text.replace("\u2212", "-")) for text in browser.texts(".search button.picture .number")]
    assert scores == pytest.approx(found[2][best], abs=6e-4)
    page.locator(".search button.picture").nth(1).click()
    nearest = browser.rows("The nearest words")
    order = (-found[:2, best[1]]).argsort(kind="stable")
    assert [row[0] for row in nearest] == [WORDS[index] for index in order]
    assert files[best[1]].name in browser.texts(".neighbours h3")[0]
    rows = list(csv.reader(io.StringIO(browser.save("Save as CSV").decode(), newline="")))
    assert rows[0] == ["picture", *WORDS]
    np.testing.assert_allclose(
        [[float(cell) for cell in row[1:]] for row in rows[1:]], found[:2].T, atol=1e-6
    )


def test_the_map_shows_the_pictures_and_is_read_with_a_keyboard(
    browser: ConsoleBrowser, files: list[Path]
) -> None:
    page = choose(browser, files)
    browser.submit()
    page.wait_for_selector("svg.points .point.chosen")
    browser.wait_until("() => document.querySelector('.map-ground canvas').style.transform")
    # Each thumbnail lies on its point, and shows the picture.
    points = [each.bounding_box() for each in page.locator("svg.points .point rect").all()]
    drawings = [each.bounding_box() for each in page.locator(".map-ground canvas").all()]
    assert len(points) == len(drawings) == len(files)
    for point, drawing in zip(points, drawings, strict=True):
        for side in ("x", "y", "width", "height"):
            assert abs(point[side] - drawing[side]) < 12  # the frame, on each side
    middle = "[...each.getContext('2d').getImageData(56, 56, 1, 1).data]"
    colours = page.evaluate(f"[...document.querySelectorAll('.map-ground canvas')].map((each) => {middle})")
    assert len({tuple(colour) for colour in colours}) > 2
    page.locator("svg.points [tabindex='0']").focus()
    before = page.evaluate("document.activeElement.dataset.row")
    moved = set()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        moved.add(page.evaluate("document.activeElement.dataset.row"))
    assert moved - {before}
    page.keyboard.press("Enter")
    chosen = int(page.evaluate("document.activeElement.dataset.row"))
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    name = label.partition(". ")[2]
    assert name in {path.name for path in files}
    assert page.locator(".cards .card .picture[aria-pressed=true]").first.get_attribute("title") == name
    assert label.startswith(f"{chosen + 1}.")
    page.keyboard.press("+")
    page.wait_for_selector("svg.points.zoomed")


DROP = """
async ([files, selector]) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { lastModified: 1 }));
  }
  const zone = document.querySelector(selector);
  for (const type of ["dragenter", "dragover", "drop"])
    zone.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}
"""


def test_pictures_are_dropped_and_other_files_are_named(browser: ConsoleBrowser, files: list[Path]) -> None:
    page = browser.open("try/pictures", is_done="main form")
    page.click("main form button.main")
    page.wait_for_selector(".output .problem")
    assert browser.texts(".output .problem") == ["Drop or choose at least one picture."]
    dropped = [[path.name, base64.b64encode(path.read_bytes()).decode()] for path in files[:3]]
    texts = [[f"{number}.png", base64.b64encode(b"<b>text</b>").decode()] for number in range(5)]
    page.evaluate(DROP, [[*dropped, *texts, ["empty.png", ""]], ".drop"])
    page.wait_for_selector(".drop [role=status]:text-is('3 pictures')")
    assert browser.texts(".drop .problem") == [
        "0.png, 1.png, 2.png and 3 more are no PNG, JPEG, WebP or GIF."
    ]
    page.evaluate(DROP, [dropped, "header"])  # beside the field, and again: they are there already
    page.wait_for_selector(".drop [role=status]:text-is('3 pictures')")
    page.evaluate(DROP, [[["4.png", dropped[0][1]]], "header"])
    page.wait_for_selector(".drop [role=status]:text-is('4 pictures')")
    page.get_by_role("button", name="Remove all").click()
    page.wait_for_selector(".drop [role=status]:text-is('No pictures yet')")


def test_what_the_server_refuses_is_named_and_the_others_are_shown(
    browser: ConsoleBrowser, files: list[Path], tmp_path: Path
) -> None:
    broken, large = tmp_path / "broken.png", tmp_path / "large.png"
    broken.write_bytes(files[0].read_bytes()[:80])
    noise = np.random.default_rng(1).integers(0, 256, (500, 500, 3), np.uint8)
    from PIL import Image

    large.write_bytes(write_picture(Image.fromarray(noise), "PNG"))
    choose(browser, [broken, *files[:4], large, files[5]])
    browser.submit()
    assert "5 pictures" in browser.texts(".summary")[0]
    told = browser.texts(".output .problem li")
    assert re.fullmatch(r"broken\.png: is a PNG file that cannot be decoded: .*", told[0])
    assert re.fullmatch(r"large\.png: .*600000.*", told[1])
    browser.faults.clear()  # the browser reports the 400s
    # A result is dimmed when its pictures are no longer those of the form.
    browser.page.get_by_role("button", name="Remove all").click()
    browser.page.wait_for_selector(".output.stale")


def test_pictures_are_there_when_the_view_is_opened_again_and_cleared(
    browser: ConsoleBrowser, files: list[Path]
) -> None:
    page = choose(browser, files[:4])
    browser.submit()
    page.click("nav a:has-text('Models')")
    page.wait_for_selector("article")
    page.click("nav a:has-text('Try')")
    page.click(".tabs a:has-text('Pictures')")
    page.wait_for_selector("svg.points .point")
    page.click("#clear")
    page.wait_for_selector(".drop [role=status]:text-is('No pictures yet')")
    page.click("#clear")  # undo
    page.wait_for_selector("svg.points .point")
    page.reload()
    page.wait_for_selector(".drop [role=status]:text-is('No pictures yet')")
    assert page.locator(".output > *").count() == 0
    kept = page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})")
    assert base64.b64encode(files[0].read_bytes()[:60]).decode() not in kept


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_nothing_keeps_people_out_with_two_hundred_pictures(
    chromium: Any, served: str, scheme: str, viewport: Any, tmp_path: Path
) -> None:
    axe = (ensure_npm(ROOT / "tests/console/npm") / "axe-core/axe.min.js").read_text("utf-8")
    many = []
    for number, data in enumerate(draw_shapes(200).values()):
        many.append(tmp_path / f"{number:03} {'a long name ' * (number % 5)}.png")
        many[-1].write_bytes(data)
    settings = {"color_scheme": scheme, **({"viewport": viewport} if viewport else {})}
    with open_browser(chromium, served, **settings) as browser:
        choose(browser, many)
        browser.submit()
        browser.wait_for_count(".map-ground canvas", 200)
        browser.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        assert find_barriers(browser.page, axe) == []
        assert browser.page.evaluate(FIND_FAULTS) == []


def test_a_server_without_pictures_does_not_offer_the_view(chromium: Any, tmp_path: Path) -> None:
    with live_server(tmp_path) as server, open_browser(chromium, server.url) as browser:
        browser.open("try/pictures", is_done="main form")
        assert "Pictures" not in browser.texts(".tabs a")
        assert browser.page.title().startswith("Similarity")
