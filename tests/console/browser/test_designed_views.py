"""Pictures that are linked and zoomed, models that load, texts as batches, and texts that wish ill."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from console.browser.console_browser import ConsoleBrowser, open_browser
from console.browser.console_server import INT8
from console.browser.test_views import TEXTS, cosines, embed, read_heat_map, type_lines
from support.batches import request_line
from support.http_server import MODEL

MANY = [f"{TEXTS[number % 3]} {number}" for number in range(30)]
CARDS = "() => [...document.querySelectorAll('.output .cards > *')].filter((e) => e.getClientRects().length)"
HOSTILE = [
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f389 \u6f22\u5b57 e\u0301",
    "x" * 100_000,
    "word " * 20_000,
    "\u2028 javascript:alert(1) ${1} {{1}}",
]


def window(browser: ConsoleBrowser) -> list[float]:
    """The part of the map that is shown: left, top, width, height."""
    box = browser.page.locator("svg.points").get_attribute("viewBox")
    return [float(each) for each in str(box).split()]


def chosen_rows(browser: ConsoleBrowser) -> list[str]:
    """The numbers of the texts that the map marks as chosen."""
    marks = browser.page.locator("svg.points .point.chosen").all()
    return [str(int(str(mark.get_attribute("data-row"))) + 1) for mark in marks]


def test_a_text_that_is_chosen_in_one_picture_is_marked_in_all(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    page = browser.open("try", is_done="main form")
    type_lines(browser, "texts", MANY)
    browser.submit()
    similar = cosines(embed(api, MANY))
    np.fill_diagonal(similar, -1)
    page.locator("svg.points .point[data-row='7']").click(force=True)
    assert chosen_rows(browser) == ["8"]
    neighbours = [int(row[0]) - 1 for row in browser.rows("Neighbours of the chosen text")]
    assert neighbours[0] == similar[7].argmax()
    assert sorted(similar[7][neighbours], reverse=True) == pytest.approx(similar[7][neighbours])
    assert page.locator("svg.points .lines line").count() == len(neighbours)
    assert [text.partition(".")[0] for text in browser.texts("table.heat tbody th.chosen")] == ["8"]
    # A neighbour, a pair, a cell and a text that was searched are chosen the same way.
    page.get_by_role("button", name=f"Choose text {neighbours[0] + 1}", exact=True).click()
    assert chosen_rows(browser) == [str(neighbours[0] + 1)]
    page.locator("table:has(caption:text('The nearest pairs')) .text-button").first.click()
    assert len(chosen_rows(browser)) == 2
    assert page.locator("table:has(caption:text('The nearest pairs')) tr.chosen").count() == 1
    page.locator("table.heat tbody tr").nth(2).locator("td").nth(5).click()
    headings = [text.partition(".")[0] for text in browser.texts("table.heat tbody th")]
    assert set(chosen_rows(browser)) == {headings[2], headings[5]}
    page.fill("input[type=search]", "pets")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nearest to: pets")
    found = [int(row[0]) - 1 for row in browser.rows("Nearest to: pets")]
    marked = {str(mark.get_attribute("data-row")) for mark in page.locator(".point.found").all()}
    assert marked == {str(row) for row in found}
    page.locator("table:has(caption:text('Nearest to: pets')) .text-button").nth(1).click()
    assert chosen_rows(browser) == [str(found[1] + 1)]
    page.get_by_role("button", name="Choose none").click()
    assert chosen_rows(browser) == []


def test_the_map_is_zoomed_and_read_with_buttons_pointer_and_keyboard(browser: ConsoleBrowser) -> None:
    page = browser.open("try", is_done="main form")
    type_lines(browser, "texts", MANY)
    browser.submit()
    assert window(browser) == [0, 0, 560, 360]
    page.get_by_role("button", name="Zoom in").click()
    browser.wait_for_count("svg.points.zoomed", 1)
    assert window(browser)[2] == pytest.approx(560 / 1.5)
    box = page.locator("svg.points").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    left = window(browser)[0]
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 100, steps=5)
    page.mouse.up()
    browser.wait_until("left => document.querySelector('svg.points').viewBox.baseVal.x > left", left)
    assert chosen_rows(browser) == []  # the pointer has moved the map, and chose nothing
    page.get_by_role("button", name="Show the whole map").click()
    browser.wait_for_count("svg.points.zoomed", 0)
    # The wheel scrolls the page, and with a key it zooms.
    page.mouse.wheel(0, -100)
    assert window(browser)[2] == 560
    page.locator("svg.points").hover(position={"x": 100, "y": 100}, force=True)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    browser.wait_for_count("svg.points.zoomed", 1)
    assert page.locator("svg.points .names text").count() > 0
    first = page.locator("svg.points .point[tabindex='0']")
    assert first.count() == 1
    first.focus()
    read = [page.evaluate("document.activeElement.getAttribute('aria-label')")]
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        read.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert len(set(read)) > 1
    assert all(label.split(". ", 1)[1] in MANY for label in read)
    page.keyboard.press("Enter")
    assert [f"{row}." for row in chosen_rows(browser)] == [read[-1].split(" ")[0]]
    page.keyboard.press("Escape")
    assert chosen_rows(browser) == []
    page.keyboard.press("0")
    browser.wait_for_count("svg.points.zoomed", 0)


def test_a_map_of_two_thousand_texts_is_drawn_whole(browser: ConsoleBrowser) -> None:
    page = browser.open("try", is_done="main form")
    page.set_default_timeout(90_000)
    content = "\n".join(f"{number} {TEXTS[number % 3]}" for number in range(2_000)).encode()
    page.set_input_files(
        ".texts input[type=file]", {"name": "t.txt", "mimeType": "text/plain", "buffer": content}
    )
    page.wait_for_selector("text=2,000 texts from t.txt")
    browser.submit()
    assert page.locator("svg.points .point").count() == 2_000
    page.get_by_role("button", name="Zoom in").click()
    browser.wait_for_count("svg.points.zoomed", 1)
    assert 0 < page.locator("svg.points .names text").count() <= 24


@pytest.mark.skipif(not INT8, reason="this processor does not multiply bytes")
def test_two_models_share_a_scale_and_have_a_map_of_their_difference(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    page = browser.open("compare/texts", is_done="main form")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    one, other = cosines(embed(api, TEXTS)), cosines(embed(api, TEXTS, model="int8"))
    np.testing.assert_allclose(read_heat_map(browser, 2), other - one, atol=4e-6)
    scales = browser.texts(".scale")
    assert scales[0] == scales[1] != scales[2]
    # A cell that is chosen in one map is chosen in all.
    page.locator("table.heat").nth(2).locator("tbody tr").nth(0).locator("td").nth(3).click()
    assert page.locator("table.heat td.chosen").count() == 3
    # More texts are in one order in all maps: similar ones beside each other.
    type_lines(browser, "texts", MANY)
    browser.submit()
    orders = [
        [text.partition(".")[0] for text in table.locator("tbody th").all_inner_texts()]
        for table in page.locator("table.heat").all()
    ]
    assert orders[0] == orders[1] == orders[2] != [str(number + 1) for number in range(len(MANY))]


def test_try_opens_while_other_models_load(browser: ConsoleBrowser, api: httpx.Client) -> None:
    late = "tiny-reranker"

    def answer_state(route: Any) -> None:
        state = api.get("/console/state.json").json()
        for model in state["models"]:
            model["state"] = "loading" if model["name"] in loading else model["state"]
        state["status"] = "loading" if loading else "ready"
        route.fulfill(status=503 if loading else 200, json=state)

    def answer_models(route: Any) -> None:
        listed = api.get("/v1/models").json()
        for entry in listed["data"]:
            if entry["id"] in loading:
                entry["state"] = "loading"
                entry.pop("capabilities", None)
        route.fulfill(json=listed)

    everything = {model["name"] for model in api.get("/console/state.json").json()["models"]}
    loading = set(everything)
    page = browser.page
    page.route("**/console/state.json", answer_state)
    page.route("**/v1/models", answer_models)
    browser.open("try")
    page.wait_for_selector("text=No model is ready yet.")
    page.wait_for_selector(f"text=0 of {len(everything)} models ready")
    assert page.locator(".problem").count() == 0
    # It opens by itself with the first model, and tells about the others.
    loading -= {MODEL}
    page.wait_for_selector("table.heat")
    assert late in page.locator(".loading-note").inner_text()
    assert float(page.locator(".loading-note progress").get_attribute("value")) == 1
    assert page.locator("#state").get_attribute("class") == "loading"
    assert page.locator(".problem").count() == 0
    # While somebody types, a new model is offered, and nothing is taken from under the hands.
    page.focus("textarea[name=texts]")
    page.keyboard.type("typed ")
    loading.clear()
    page.get_by_role("button", name="Offer").click()
    page.wait_for_selector(".tabs a:text-is('Rerank')")
    assert "typed" in page.input_value("textarea[name=texts]")
    assert not page.locator(".loading-note").is_visible()
    browser.faults.clear()  # the browser reports the 503


def test_files_of_texts_become_batches(browser: ConsoleBrowser, api: httpx.Client, tmp_path: Path) -> None:
    file = tmp_path / "articles.csv"
    file.write_text('id,text\nfirst,"a text, with a comma"\nsecond,another\n', encoding="utf-8")
    page = browser.open("batches", is_done="main form")
    page.set_input_files("input[type=file]", file)
    page.wait_for_selector("text=2 texts from column text: a request for an embedding each.")
    assert not page.locator("select[name=endpoint]").is_visible()
    page.select_option("form select[name=model]", MODEL)
    page.click("main form button.main")
    page.wait_for_selector("th:has-text('completed') + td:text-is('articles.csv.jsonl')")
    with page.expect_download() as waiting:
        page.get_by_text("Save results").first.click()
    lines = [json.loads(line) for line in Path(waiting.value.path()).read_text("utf-8").splitlines()]
    found = {line["custom_id"]: line["response"]["body"]["data"][0]["embedding"] for line in lines}
    expected = embed(api, ["a text, with a comma", "another"])
    np.testing.assert_allclose([found["first"], found["second"]], expected, atol=1e-5)
    page.set_input_files("input[type=file]", {"name": "a.pdf", "mimeType": "x", "buffer": b"%PDF"})
    page.wait_for_selector("form .problem:has-text('a.pdf is not read here.')")
    assert page.locator("main form button.main").is_disabled()


def test_the_errors_of_a_batch_are_read_in_the_page(browser: ConsoleBrowser, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    bodies = [{"input": "a", "model": MODEL, "dimensions": 5_000}] * 3 + [{"input": "b", "model": MODEL}]
    file.write_text("\n".join(request_line(f"n{place}", body) for place, body in enumerate(bodies)))
    page = browser.open("batches", is_done="main form")
    page.set_input_files("input[type=file]", file)
    page.click("main form button.main")
    page.wait_for_selector("tr:has-text('3 failed') >> text=completed")
    page.get_by_role("button", name="Show errors").first.click()
    page.wait_for_selector("caption:has-text('What went wrong')")
    message, status, total, first = browser.texts("td.reasons tbody :is(th, td)")
    assert "dimensions" in message
    assert (status, total, first) == ("400", "3", "n0, n1, n2")
    # A list that was drawn anew has the focus where it was.
    assert page.evaluate("document.activeElement.textContent") == "Hide errors"
    page.keyboard.press("Enter")
    browser.wait_for_count("caption:has-text('What went wrong')", 0)


@pytest.mark.parametrize(
    ("view", "name"),
    [("try", "texts"), ("try/rerank", "documents"), ("try/entities", "texts"), ("compare/texts", "texts")],
)
@pytest.mark.parametrize("width", [390, 1280])
def test_texts_that_wish_ill_are_texts(chromium: Any, served: str, view: str, name: str, width: int) -> None:
    with open_browser(chromium, served, viewport={"width": width, "height": 844}) as browser:
        page = browser.open(view, is_done="main form")
        type_lines(browser, name, HOSTILE)
        browser.submit()
        assert page.locator(".output img, .output script").count() == 0
        assert "taken" not in page.title()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.locator(".output").inner_text().count("<img src=x") >= 1


def test_a_form_stands_beside_its_result_from_1280_pixels_on(chromium: Any, served: str) -> None:
    for width in (390, 1279, 1280, 1920):
        with open_browser(chromium, served, viewport={"width": width, "height": 844}) as browser:
            page = browser.open("try", is_done="table.heat")
            form, output = (page.locator(each).bounding_box() for each in ("main form", ".output"))
            is_beside = output["x"] >= form["x"] + form["width"] and output["y"] < form["y"] + form["height"]
            assert is_beside is (width >= 1280), width
            if is_beside:
                cards = page.evaluate(f"({CARDS})().map((e) => e.getBoundingClientRect().right)")
                # Something reaches the right edge: no half of the window is empty.
                assert max(cards) >= width - 32


def test_a_server_that_dies_leaves_what_was_typed(browser: ConsoleBrowser) -> None:
    page = browser.open("try", is_done="table.heat")
    type_lines(browser, "texts", TEXTS)
    page.route("**/v1/embeddings", lambda route: route.abort())
    page.route("**/console/state.json", lambda route: route.abort())
    page.click("main form button.main")
    page.wait_for_selector(".output .problem:text('The server cannot be reached.')")
    assert page.input_value("textarea[name=texts]") == "\n".join(TEXTS)
    page.wait_for_selector("#state.problem:text('the server cannot be reached')")
    page.unroute("**/v1/embeddings")
    page.unroute("**/console/state.json")
    browser.submit()
    page.wait_for_selector("table.heat")
    page.wait_for_selector("#state.ready")
    browser.faults.clear()  # the browser reports the requests that failed
