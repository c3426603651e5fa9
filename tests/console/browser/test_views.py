"""Every view of the console in a browser shows what the API answers."""

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from console.browser.console_browser import ConsoleBrowser
from console.browser.console_server import ALIAS, INT8
from support.batches import request_line
from support.http_server import MODEL
from vecmill.values.aliases import FloatArray

TEXTS = [
    "A cat sat on the mat.",
    "A kitten rests on a rug.",
    "Shares fell on Monday.",
    "Die Katze schläft.",
    "猫が寝ている",
]
LONG = "word " * 600
MANY = 400
QUERY = "Where does the cat sleep?"


def embed(api: httpx.Client, texts: list[str], **fields: Any) -> FloatArray:
    """The embeddings (texts, dimensions) that the API answers."""
    answer = api.post("/v1/embeddings", json={"model": MODEL, "input": texts, **fields})
    assert answer.status_code == 200, answer.text
    rows: FloatArray = np.array([each["embedding"] for each in answer.json()["data"]], np.float32)
    return rows


def cosines(rows: FloatArray) -> FloatArray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found: FloatArray = unit @ unit.T
    return found


def read_heat_map(browser: ConsoleBrowser, place: int = 0) -> FloatArray:
    """The numbers behind the cells of a heat map."""
    rows = browser.page.locator("table.heat").nth(place).locator("tbody tr").all()
    values = [[float(cell.get_attribute("data-value")) for cell in row.locator("td").all()] for row in rows]
    return np.array(values, np.float32)


def type_lines(browser: ConsoleBrowser, name: str, lines: list[str]) -> None:
    browser.page.fill(f"textarea[name={name}]", "\n".join(lines))


def test_the_heat_map_and_the_nearest_pairs_are_those_of_the_api(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    browser.open("try")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    expected = cosines(embed(api, TEXTS))
    np.testing.assert_allclose(read_heat_map(browser), expected, atol=2e-6)
    shown = browser.rows("Cosine similarity")
    assert [float(cell) for cell in shown[1][1:]] == pytest.approx(expected[1], abs=0.0051)
    pairs = browser.rows("The nearest pairs")
    assert pairs[0][:2] == TEXTS[:2]
    scores = [float(pair[2]) for pair in pairs]
    assert scores == sorted(scores, reverse=True)
    assert browser.page.locator("svg.points circle").count() == len(TEXTS)
    assert "5 texts, 384 numbers each, " in browser.texts(".summary")[0]


def test_options_of_a_request_change_its_result(browser: ConsoleBrowser, api: httpx.Client) -> None:
    page = browser.open("try")
    type_lines(browser, "texts", TEXTS)
    page.click("summary:has-text('Options')")
    page.fill("input[name=dimensions]", "32")
    page.fill("input[name=prompt]", "clustering: ")
    page.select_option("select[name=purpose]", "query")
    browser.submit()
    expected = embed(api, TEXTS, dimensions=32, prompt="clustering: ", input_type="query")
    np.testing.assert_allclose(read_heat_map(browser), cosines(expected), atol=2e-6)
    page.fill("input[name=dimensions]", "5000")
    page.click("main form button.main")
    page.wait_for_selector(".output .problem")
    assert "dimensions" in browser.texts(".output .problem")[0]
    browser.faults.clear()  # the browser reports the 400


def test_a_text_that_was_cut_is_marked(browser: ConsoleBrowser) -> None:
    browser.open("try")
    type_lines(browser, "texts", ["short", LONG, "other"])
    browser.submit()
    assert browser.texts(".output .note") == [
        "1 text of 3 (number 2) was cut off: the model reads 256 tokens."
    ]
    headings = browser.page.locator("table.heat tbody th").all()
    assert ["(cut off)" in heading.get_attribute("title") for heading in headings] == [False, True, False]


def test_of_many_texts_some_are_drawn_and_all_are_saved(browser: ConsoleBrowser) -> None:
    texts = [f"{number} {TEXTS[number % len(TEXTS)]}" for number in range(MANY)]
    browser.open("try")
    type_lines(browser, "texts", texts)
    browser.submit()
    assert f"{MANY} texts" in browser.texts(".summary")[0]
    drawn = browser.rows(f"(60 of {MANY} texts)")
    assert (len(drawn), len(drawn[0])) == (60, 61)
    assert browser.page.locator("svg.points .point").count() == MANY
    rows = list(csv.reader(io.StringIO(browser.save("Save as CSV").decode(), newline="")))
    assert {len(row) for row in rows} == {len(rows)} == {MANY + 1}


def test_a_program_is_copied_with_a_clipboard_and_without(browser: ConsoleBrowser) -> None:
    browser.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # Browsers offer no clipboard to pages over HTTP from another machine.
    for missing in (False, True):
        page = browser.open("try")
        if missing:
            page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        browser.submit()
        snippets = browser.snippets()
        page.get_by_role("button", name="Copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        page.fill("textarea[name=texts]", "")
        page.focus("textarea[name=texts]")
        page.keyboard.press("Control+V")
        assert page.input_value("textarea[name=texts]") == list(snippets.values())[-1]


def test_results_are_saved_as_they_are_shown(browser: ConsoleBrowser) -> None:
    browser.open("try")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    shown = read_heat_map(browser)
    rows = list(csv.reader(io.StringIO(browser.save("Save as CSV").decode(), newline="")))
    assert rows[0][1:] == TEXTS
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], np.float32), shown, atol=1e-6)
    document = json.loads(browser.save("Save as JSON"))
    assert (document["model"], document["texts"]) == (MODEL, TEXTS)
    np.testing.assert_allclose(cosines(np.array(document["embeddings"], np.float32)), shown, atol=2e-6)


def number(cell: str) -> float:
    """The number in a cell, which has a minus sign and no hyphen."""
    assert "-" not in cell
    return float(cell.replace("\u2212", "-"))


def test_documents_are_ranked_as_the_api_does_by_several_models(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    page = browser.open("try/rerank")
    page.fill("input[name=query]", QUERY)
    type_lines(browser, "documents", TEXTS)
    for box in page.locator("input[name=rerankers]").all():
        box.check()
    names = [str(box.get_attribute("value")) for box in page.locator("input[name=rerankers]").all()]
    assert names == ["tiny-reranker", MODEL, *INT8, "optimized"]
    browser.submit()
    rows = browser.rows(f"The best document of {names[0]} first")
    for place, name in enumerate(names, 1):
        answer = api.post("/v1/rerank", json={"model": name, "query": QUERY, "documents": TEXTS}).json()
        scores = {TEXTS[each["index"]]: each["relevance_score"] for each in answer["results"]}
        assert {row[0]: number(row[place].split()[1]) for row in rows} == pytest.approx(scores, abs=6e-4)
        ranks = {TEXTS[each["index"]]: rank for rank, each in enumerate(answer["results"], 1)}
        assert {row[0]: int(row[place].split()[0]) for row in rows} == ranks
    assert [int(row[1].split()[0]) for row in rows] == list(range(1, len(TEXTS) + 1))
    page.select_option("select[name=sorted_by]", label=MODEL)
    rows = browser.rows(f"The best document of {MODEL} first")
    assert [int(row[2].split()[0]) for row in rows] == list(range(1, len(TEXTS) + 1))


def test_labels_are_those_of_the_api(browser: ConsoleBrowser, api: httpx.Client) -> None:
    browser.open("try/classify")
    type_lines(browser, "texts", TEXTS[:2])
    browser.submit()
    body = {"model": "tiny-classifier", "input": TEXTS[:2], "raw_scores": False}
    answer = api.post("/classify", json=body).json()
    for text, labels in zip(TEXTS[:2], answer["data"], strict=True):
        shown = {row[0]: float(row[1]) for row in browser.rows(text)}
        assert shown == pytest.approx({each["label"]: each["score"] for each in labels}, abs=6e-4)


def read_marks(browser: ConsoleBrowser) -> list[list[str]]:
    """The marked parts of each text, with their labels."""
    return [
        [" ".join(mark.split()) for mark in paragraph.locator("mark").all_inner_texts()]
        for paragraph in browser.page.locator("p.entities").all()
    ]


def test_entities_are_marked_where_the_api_finds_them(browser: ConsoleBrowser, api: httpx.Client) -> None:
    browser.open("try/entities")
    type_lines(browser, "texts", TEXTS[:3])
    browser.page.select_option("select[name=strategy]", "simple")
    browser.submit()
    body = {
        "model": "tiny-entities",
        "inputs": [[text] for text in TEXTS[:3]],
        "aggregation_strategy": "simple",
    }
    found = api.post("/predict", json=body).json()
    assert any(found), "the model finds nothing in these texts"
    assert read_marks(browser) == [
        [f"{text[each['start'] : each['end']]} {each['entity_group']}" for each in entities]
        for text, entities in zip(TEXTS, found, strict=False)
    ]


def test_entities_of_whole_words_have_no_part_of_a_word(browser: ConsoleBrowser) -> None:
    browser.open("try/entities")
    type_lines(browser, "texts", TEXTS[:3])
    browser.page.select_option("select[name=strategy]", "max")
    browser.submit()
    marks = read_marks(browser)
    assert any(marks), "the model finds nothing in these texts"
    for text, found in zip(TEXTS, marks, strict=False):
        words = set(re.findall(r"\w+|[^\w\s]", text))
        for mark in found:
            assert set(re.findall(r"\w+|[^\w\s]", mark.rpartition(" ")[0])) <= words


@pytest.mark.skipif(not INT8, reason="this processor does not multiply bytes")
def test_two_plans_of_a_model_are_compared(browser: ConsoleBrowser, api: httpx.Client) -> None:
    browser.open("compare")
    # The second name of a model is no model to compare it with.
    assert ALIAS in {each["id"] for each in api.get("/v1/models").json()["data"]}
    assert browser.texts("select[name=first] option") == [MODEL, *INT8, "optimized"]
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    one, other = embed(api, TEXTS), embed(api, TEXTS, model="int8")
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (one, other)]
    worst = float((unit[0] * unit[1]).sum(axis=1).min())
    summary = browser.texts(".summary")
    assert summary[0].startswith(f"Cosine between the embeddings of a text: worst {worst:.5f}, mean ")
    assert summary[0].endswith("Both are the same model.")
    np.testing.assert_allclose(read_heat_map(browser, 0), cosines(one), atol=2e-6)
    np.testing.assert_allclose(read_heat_map(browser, 1), cosines(other), atol=2e-6)
    facts = {row[0]: row[1:] for row in browser.rows("The two requests")}
    assert facts["Dimensions"] == ["384", "384"]
    assert facts["Engine and precision"] == ["onnx fp32", "onnx int8"]
    assert 0.99 < worst < 1


def test_the_models_are_described_with_what_optimize_measured(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    page = browser.open("models", is_done="article")
    reports = {each["name"]: each for each in api.get("/console/models.json").json()["models"]}
    assert reports[MODEL]["fingerprint"] == reports["optimized"]["fingerprint"] is not None
    lines = {row[0]: row[1:] for row in browser.rows("The served models")}
    assert list(lines) == list(reports)
    assert lines["tiny-reranker"][:4] == ["ready", "rerank", "onnx fp32", "cpu"]
    # The first model is described, until another one is chosen.
    shown = dict(browser.rows("What is served"))
    assert shown["dimensions"] == "384"
    assert shown["precision"] == "fp32"
    assert shown["fingerprint of weights and settings"] == reports[MODEL]["fingerprint"]
    page.get_by_role("link", name="optimized").click()
    page.wait_for_selector("article h3:text-is('optimized')")
    assert page.locator("tr.chosen a").inner_text() == "optimized"
    plans = reports["optimized"]["optimized"]["plans"]
    assert len(browser.rows("All plans, the fastest first")) == len(plans)
    measured = [plan for plan in plans if plan["texts_per_s"] is not None and plan["loss"] is not None]
    assert browser.page.locator("svg.scatter").nth(0).locator("circle").count() == len(measured)
    assert browser.page.locator("svg.scatter").nth(0).locator(".chosen").count() == 1
    # No cosine is greater than 1, and no axis says so.
    for drawing in page.locator("svg.scatter").all():
        numbers = drawing.locator("text[text-anchor=end]").all_text_contents()
        assert numbers
        assert max(map(float, numbers)) <= 1


CHARTS = 9


def test_the_load_is_watched_live(browser: ConsoleBrowser, api: httpx.Client) -> None:
    page = browser.open("watch", is_done=".charts figure")
    assert page.locator(".charts figure").count() == CHARTS
    page.wait_for_selector("text=Nothing to do")
    for number in range(40):
        assert (
            api.post("/v1/embeddings", json={"input": [f"{number} {text}" for text in TEXTS]}).status_code
            == 200
        )
    page.wait_for_selector("text=engine calls run")
    browser.wait_for_count(".charts canvas", CHARTS)
    (row,) = [row for row in browser.rows("Requests by route since") if row[0] == "embeddings"]
    assert int(row[1]) >= 40
    assert sum(int(each.split(": ")[1]) for each in row[2].split(", ")) == int(row[1])
    latest = browser.texts(".latest")
    assert any("answered" in text for text in latest)
    memory = next(text for text in latest if "memory" in text)
    assert memory.endswith(("MB", "GB"))


def test_the_message_of_a_failed_action_stays_and_that_of_a_lost_server_goes(
    browser: ConsoleBrowser, tmp_path: Path
) -> None:
    page = browser.open("batches", is_done="main form")
    file = tmp_path / "requests.jsonl"
    file.write_text("{}")
    page.route(
        "**/v1/files", lambda route: route.abort() if route.request.method == "POST" else route.continue_()
    )
    page.set_input_files("input[type=file]", file)
    page.click("main form button.main")
    page.wait_for_selector("main .problem:visible")
    for _ in range(2):
        with page.expect_response("**/v1/files"):
            pass
    assert page.locator("main .problem").is_visible()
    page.unroute("**/v1/files")
    browser.open("batches", is_done="main form")
    page.route("**/v1/files", lambda route: route.abort())
    page.wait_for_selector("text=The server cannot be reached.")
    page.unroute("**/v1/files")
    page.wait_for_selector("text=The server cannot be reached.", state="hidden")
    browser.faults.clear()  # the browser reports the requests that failed


def test_files_and_batches_are_started_saved_cancelled_and_deleted(
    browser: ConsoleBrowser, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(
        "\n".join(request_line(str(n), {"input": text, "model": MODEL}) for n, text in enumerate(TEXTS))
    )
    page = browser.open("batches", is_done="main form")
    page.set_input_files("input[type=file]", file)
    page.click("main form button.main")
    page.wait_for_selector(f"tr:has-text('{len(TEXTS)} of {len(TEXTS)} requests') >> text=completed")
    row = browser.rows("Batches, the newest first")[0]
    assert row[0] == "completed"
    assert row[1] == "requests.jsonl"
    assert row[2].strip() == f"{len(TEXTS)} of {len(TEXTS)} requests"
    with page.expect_download() as waiting:
        page.get_by_text("Save results").first.click()
    assert waiting.value.suggested_filename == "requests-results.jsonl"
    lines = Path(waiting.value.path()).read_text("utf-8").splitlines()
    assert sorted(json.loads(line)["custom_id"] for line in lines) == [str(n) for n in range(len(TEXTS))]
    # A long batch is cancelled.
    file.write_text(
        "\n".join(request_line(str(n), {"input": [LONG] * 64, "model": MODEL}) for n in range(64))
    )
    page.set_input_files("input[type=file]", file)
    page.click("main form button.main")
    page.get_by_role("button", name="Cancel").first.click()
    page.wait_for_selector(".state:text('cancelled')")
    page.on("dialog", lambda dialog: dialog.accept())
    before = page.get_by_role("button", name="Delete").count()
    page.get_by_role("button", name="Delete").last.click()
    browser.wait_for_count("button:text('Delete')", before - 1)


def test_the_api_page_sends_an_example(browser: ConsoleBrowser) -> None:
    page = browser.page
    page.goto(f"{browser.url}/docs")
    page.wait_for_selector(".opblock-tag")
    page.locator(".opblock-tag", has_text="OpenAI").first.click()
    page.locator("#operations-OpenAI .opblock, .opblock").first.click()
    page.locator("button.execute").first.click()
    status = page.locator(".live-responses-table tbody .response-col_status").first
    status.wait_for()
    assert status.inner_text().startswith("200")
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_many_texts_are_searched_and_grouped(browser: ConsoleBrowser, api: httpx.Client) -> None:
    texts = [f"{TEXTS[number % 3]} {number}" for number in range(45)]
    page = browser.open("try")
    type_lines(browser, "texts", texts)
    browser.submit()
    page.fill("input[type=search]", "pets")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nearest to: pets")
    rows, query = embed(api, texts), embed(api, ["pets"])[0]
    nearest = np.argsort(-(rows @ query))[:10]
    found = browser.rows("Nearest to: pets")
    assert [int(row[0]) - 1 for row in found] == nearest.tolist()
    assert [float(row[2]) for row in found] == pytest.approx((rows @ query)[nearest].tolist(), abs=6e-4)
    page.locator("input[type=range]").fill("3")
    summaries = browser.texts(".groups summary")
    assert len(summaries) == 3
    assert sum(int(summary.split()[0]) for summary in summaries) == len(texts)
    topics = {summary.partition(": ")[2].rpartition(" ")[0] for summary in summaries}
    assert TEXTS[2] in topics


def test_a_cell_of_the_heat_map_is_read_with_pointer_and_keyboard(browser: ConsoleBrowser) -> None:
    texts = [f"{TEXTS[number % 3]} {number}" for number in range(20)]
    page = browser.open("try")
    type_lines(browser, "texts", texts)
    browser.submit()
    values = read_heat_map(browser)
    numbers = [int(label.partition(".")[0]) for label in browser.texts("table.heat tbody th")]
    assert sorted(numbers) == list(range(1, 21))
    page.locator("table.heat tbody tr").nth(2).locator("td").nth(5).hover()
    one, other = numbers[2], numbers[5]
    assert browser.texts(".readout")[0].split() == [
        f"{values[2, 5]:.3f}",
        *f"{one}. {texts[one - 1]} {other}. {texts[other - 1]}".split(),
    ]
    # The texts of a topic are beside each other.
    topics = [(number - 1) % 3 for number in numbers]
    assert len([1 for before, after in itertools.pairwise(topics) if before != after]) == 2
    page.locator("table.heat td[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    assert browser.texts(".readout")[0].startswith(f"{values[1, 0]:.3f}")


def test_texts_come_from_a_file(browser: ConsoleBrowser, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text('id,text\n1,"a text\n\nof two paragraphs"\n2,another\n', encoding="utf-8")
    page = browser.open("try")
    page.set_input_files(".texts input[type=file]", file)
    page.wait_for_selector("text=2 texts from texts.csv, column text")
    browser.submit()
    assert "2 texts" in browser.texts(".summary")[0]
    assert page.input_value("select[name=texts_separation]") == "paragraphs"
    document = json.loads(browser.save("Save as JSON"))
    assert document["texts"] == ["a text\nof two paragraphs", "another"]
    page.set_input_files(".texts input[type=file]", {"name": "a.pdf", "mimeType": "x", "buffer": b"%PDF"})
    page.wait_for_selector("text=a.pdf is not read here.")


def test_long_texts_show_two_lines_and_the_rest_on_demand(browser: ConsoleBrowser) -> None:
    page = browser.open("try/rerank", is_done="main form")
    type_lines(browser, "documents", [LONG, "short"])
    browser.submit()
    more = page.get_by_role("button", name="more")
    more.wait_for()
    assert more.count() == 1
    folded = page.locator(".two-lines").first.bounding_box()["height"]
    more.click()
    assert page.locator(".whole-text").bounding_box()["height"] > 3 * folded
    assert page.get_by_role("button", name="less").get_attribute("aria-expanded") == "true"


def test_labelled_queries_measure_two_models(browser: ConsoleBrowser, api: httpx.Client) -> None:
    browser.open("compare/queries", is_done="main form")
    pairs = [("Where is the cat?", TEXTS[0]), ("What did the market do?", TEXTS[2])]
    browser.page.fill(
        "textarea[name=labelled]", "\n".join(["\t".join(pair) for pair in pairs] + [TEXTS[1], TEXTS[3]])
    )
    browser.submit()
    documents = [TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[3]]
    scores = embed(api, [query for query, _ in pairs]) @ embed(api, documents).T
    places = [1 + int((scores[row] > scores[row, row]).sum()) for row in range(2)]
    _, ndcg, interval, recall, _, _, reciprocal, _ = browser.rows(
        "How well each model finds the right answers"
    )[0]
    assert float(recall) == pytest.approx(np.mean([place == 1 for place in places]))
    assert float(reciprocal) == pytest.approx(np.mean([1 / place for place in places]), abs=6e-4)
    low, high = map(float, interval.split(" to "))
    assert low <= float(ndcg) <= high
    found = {row[0]: int(row[1]) for row in browser.rows("Place of the first right answer")}
    assert found == {query: place for (query, _), place in zip(pairs, places, strict=True)}


def test_labelled_queries_measure_fewer_dimensions_beside_all(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    page = browser.open("compare/queries", is_done="main form")
    queries = ["Where is the cat?", "A young cat lies down.", "What did the market do?", "Wo schläft sie?"]
    type_lines(browser, "labelled", [" => ".join(pair) for pair in zip(queries, TEXTS, strict=False)])
    for box in page.locator("input[name=models]").all():
        box.uncheck()
    page.click("main form button.main")
    page.wait_for_selector(".output .problem")
    assert browser.texts(".output .problem") == ["Choose at least one model."]
    page.check(f"input[name=models][value='{MODEL}']")
    page.fill("input[name=fewer_dimensions]", "64, 8, 64, 5000")
    browser.submit()
    rows = browser.rows("How well each model finds the right answers")
    assert [row[0] for row in rows] == [MODEL, f"{MODEL}, 64 dimensions", f"{MODEL}, 8 dimensions"]
    ndcg = []
    for dimensions in (384, 64, 8):
        scores = embed(api, queries, dimensions=dimensions) @ embed(api, TEXTS[:4], dimensions=dimensions).T
        places = 1 + (scores > scores.diagonal()[:, None]).sum(axis=1)
        ndcg.append(float(np.mean(1 / np.log2(1 + places))))
    assert [float(row[1]) for row in rows] == pytest.approx(ndcg, abs=6e-4)
    assert ndcg[2] < ndcg[0]
    assert [row[-1] == "" for row in rows] == [True, False, False]
    saved = json.loads(browser.save("Save as JSON"))
    assert saved["models"] == [row[0] for row in rows]
    assert [each["ndcg10"] for each in saved["measures"]] == pytest.approx(ndcg, abs=6e-4)


def test_the_view_watch_shows_what_was_before_it_was_opened(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    for number in range(20):
        assert api.post("/v1/embeddings", json={"input": [f"past {number}"]}).status_code == 200
    assert api.get("/console/history.json").json()
    page = browser.open("watch", is_done=".charts canvas")
    assert int(browser.rows("Requests by route since")[0][1]) >= 1
    names = browser.texts("select[name=model] option")
    assert names[0] == "all models"
    assert MODEL in names
    page.select_option("select[name=model]", "tiny-classifier")
    texts = next(text for text in browser.texts(".latest") if "tiny-classifier" in text)
    assert texts.endswith("tiny-classifier 0")
    chart = page.locator(".charts canvas").first.bounding_box()
    page.mouse.move(chart["x"] + 0.7 * chart["width"], chart["y"] + 60)
    assert page.locator(".latest time").count() == CHARTS  # one point in time, in every chart
    assert "p50" in browser.texts(".latest")[1]
    assert "p95" in browser.texts(".latest")[1]


def test_a_model_tells_its_space_names_and_last_use(browser: ConsoleBrowser, api: httpx.Client) -> None:
    assert api.post("/v1/embeddings", json={"model": MODEL, "input": ["a text"]}).status_code == 200
    browser.open("models", is_done="article")
    entry = next(each for each in api.get("/v1/models").json()["data"] if each["id"] == MODEL)
    shown = dict(browser.rows("What is served"))
    assert shown["space: vectors of equal spaces are comparable"] == entry["space"]
    assert shown["other names"] == ALIAS
    assert shown["last request"].endswith(" ago")


def test_a_batch_that_failed_says_why_and_when_it_was_made(browser: ConsoleBrowser, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"custom_id": "a"}\n', encoding="utf-8")
    page = browser.open("batches", is_done="main form")
    page.set_input_files("input[type=file]", file)
    page.click("main form button.main")
    page.wait_for_selector(".reasons li")
    assert browser.texts(".reasons li")[0].startswith("line 1: ")
    made = page.locator("td time").first.get_attribute("datetime")
    assert made.startswith("20")
    assert made.endswith("Z")


def test_the_api_page_finds_operations(browser: ConsoleBrowser) -> None:
    page = browser.page
    page.goto(f"{browser.url}/docs")
    page.wait_for_selector(".opblock-tag")
    page.fill(".operation-filter-input", "cohere check-api")
    page.wait_for_selector(".opblock")
    assert browser.texts(".opblock-summary-path") == ["/v1/check-api-key"]


@pytest.mark.parametrize(
    ("view", "name"), [("try/rerank", "documents"), ("try/classify", "texts"), ("compare/texts", "texts")]
)
def test_every_view_tells_that_texts_were_cut_off(browser: ConsoleBrowser, view: str, name: str) -> None:
    browser.open(view, is_done="main form")
    type_lines(browser, name, ["short", LONG, "other"])
    browser.submit()
    assert "1 text was cut off: " in " ".join(browser.texts(".output .note"))


def test_a_result_of_other_texts_is_marked(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    assert not page.locator(".stale-note").is_visible()
    page.fill("textarea[name=texts]", "another\ntext")
    assert page.locator(".stale-note").is_visible()
    browser.open("try")
    page.wait_for_selector("table.heat")
    assert page.locator(".stale-note").is_visible()
    browser.submit()
    assert not page.locator(".stale-note").is_visible()


def test_the_number_of_a_cell_is_seen_without_scrolling(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    type_lines(browser, "texts", [f"{TEXTS[number % 5]} {number}" for number in range(60)])
    browser.submit()
    page.locator("table.heat tbody tr").nth(2).locator("td").nth(5).hover()
    box = page.locator(".readout").first.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 901


def test_a_result_that_another_release_has_kept_is_forgotten(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    page.wait_for_selector("table.heat")
    page.evaluate(
        "for (const name of Object.keys(sessionStorage))"
        " if (name.endsWith(' result')) sessionStorage.setItem(name, '{\"old\": 1}')"
    )
    browser.open("try", is_done="main form")
    assert page.locator(".output").inner_text() == ""
    browser.submit()
    page.wait_for_selector("table.heat")


def test_a_run_goes_on_when_its_view_is_left_and_can_be_stopped(browser: ConsoleBrowser) -> None:
    texts = [f"{number} {TEXTS[number % len(TEXTS)]}" for number in range(600)]
    page = browser.open("try")
    page.wait_for_selector("table.heat")
    type_lines(browser, "texts", texts)
    page.click("main form button.main")
    page.wait_for_selector("text=of 600 texts")  # how far it is
    page.click("nav a:text('Models')")
    page.wait_for_selector("article")
    page.click("nav a:text('Try')")
    page.wait_for_selector(f".summary:has-text('{len(texts)} texts')")
    assert not page.get_by_role("button", name="Stop").is_visible()
    shown = browser.texts(".summary")
    page.click("main form button.main")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector("main form button.main:not([aria-busy])")
    assert browser.texts(".summary") == shown  # what was there before


def open_lines(browser: ConsoleBrowser, lines: list[str]) -> None:
    """Open a file with these lines: a browser needs long to type thousands of them."""
    content = "\n".join(lines).encode()
    file = {"name": "texts.txt", "mimeType": "text/plain", "buffer": content}
    browser.page.set_input_files(".texts input[type=file]", file)
    browser.page.wait_for_selector(f"text={len(lines):,} texts from texts.txt")


def test_more_texts_than_a_request_may_have_are_compared_and_too_many_are_refused_at_once(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    many = [f"{number} cats" for number in range(2_500)]
    models = api.get("/console/models.json").json()["models"]
    assert len(many) > models[0]["facts"]["texts in a request, at most"]
    page = browser.open("try")
    page.wait_for_selector("table.heat")
    page.set_default_timeout(60_000)
    open_lines(browser, many)
    browser.submit()
    assert browser.texts(".summary")[0].startswith("2,500 texts, ")
    assert browser.rows("(60 of 2500 texts)")
    open_lines(browser, [f"{number} cats" for number in range(3_001)])
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.click("main form button.main")
    page.wait_for_selector("text=This view compares at most 3,000 texts")
    assert not [url for url in requests if url.endswith("/embeddings")]


def test_what_was_cleared_is_brought_back_until_something_is_typed(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    page.click("#clear")
    page.wait_for_selector("table.heat")  # of the examples
    assert page.input_value("textarea[name=texts]") != "\n".join(TEXTS)
    page.click("text=Undo the clearing")
    page.wait_for_selector("main form")
    assert page.input_value("textarea[name=texts]") == "\n".join(TEXTS)
    page.click("#clear")
    page.wait_for_selector("table.heat")
    page.fill("textarea[name=texts]", "another text")
    assert browser.texts("#clear") == ["Clear texts and results"]
    browser.open("watch", is_done=".charts figure")
    assert not page.locator("#clear").is_visible()


def test_options_that_were_changed_are_open_after_a_reload(browser: ConsoleBrowser) -> None:
    page = browser.open("try")
    assert not page.locator("input[name=prompt]").is_visible()
    page.click("summary:has-text('Options')")
    page.fill("input[name=prompt]", "query: ")
    browser.open("try", is_done="main form")
    assert page.locator("input[name=prompt]").is_visible()
    assert page.input_value("input[name=prompt]") == "query: "


def test_the_best_labels_of_several_texts_are_one_table(browser: ConsoleBrowser, api: httpx.Client) -> None:
    browser.open("try/classify")
    type_lines(browser, "texts", TEXTS)
    browser.submit()
    answer = api.post("/classify", json={"model": "tiny-classifier", "input": TEXTS, "raw_scores": False})
    rows = browser.rows("The best label of each text")
    for row, text, labels in zip(rows, TEXTS, answer.json()["data"], strict=True):
        best, *others = sorted(labels, key=lambda each: -each["score"])
        assert row[:2] == [text, best["label"]]
        assert float(row[2]) == pytest.approx(best["score"], abs=6e-4)
        assert [part.split()[0] for part in row[3].split(", ")] == [each["label"] for each in others]


def test_a_point_of_the_map_names_its_text_and_groups_differ_in_colour_or_shape(
    browser: ConsoleBrowser,
) -> None:
    texts = [f"{TEXTS[number % 3]} {number}" for number in range(90)]
    page = browser.open("try")
    type_lines(browser, "texts", texts)
    browser.submit()
    page.locator("svg.points .point").nth(4).hover(force=True)
    row = int(page.locator("svg.points .point").nth(4).get_attribute("data-row"))
    assert browser.texts("figure .readout") == [f"{row + 1}. {texts[row]}"]
    page.locator("input[type=range]").fill("20")
    marks = page.locator(".groups summary svg").all()
    looks = {(mark.get_attribute("class"), mark.inner_html()) for mark in marks}
    assert len(marks) == len(looks) == 20


def test_models_that_agree_are_told_so(browser: ConsoleBrowser) -> None:
    page = browser.open("compare/texts", is_done="main form")
    page.select_option("select[name=second]", MODEL)
    type_lines(browser, "texts", [f"{TEXTS[number % 5]} {number}" for number in range(12)])
    browser.submit()
    assert any(text.startswith("No pair of texts changes its rank") for text in browser.texts(".summary"))
    assert page.locator("caption:has-text('Pairs whose rank changes')").count() == 0


def test_charts_stay_when_the_server_is_gone(browser: ConsoleBrowser, api: httpx.Client) -> None:
    assert api.post("/v1/embeddings", json={"input": TEXTS}).status_code == 200
    page = browser.open("watch", is_done=".charts canvas")
    drawn = page.locator(".charts canvas").count()
    page.route("**/metrics", lambda route: route.abort())
    page.wait_for_selector("text=The server cannot be reached.")
    assert page.locator(".charts canvas").count() == drawn
    assert "answered" in browser.texts(".latest")[0]
    browser.faults.clear()  # the browser reports the requests that failed
