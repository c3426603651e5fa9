"""The view Watch under a load on two models: no figure of the page contradicts another."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from console.browser.console_browser import ConsoleBrowser
from support.http_server import MODEL

OTHER = "optimized"
TEXTS = [f"A text that takes a moment, number {number}." for number in range(5)]


def test_the_figures_of_the_view_watch_are_the_same_wherever_they_stand(
    browser: ConsoleBrowser, api: httpx.Client
) -> None:
    """In the sentence, the tiles and the charts, whichever model is chosen."""
    page = browser.open("watch", is_done=".charts figure")
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(send_texts, api, (MODEL, OTHER)[number % 2], number) for number in range(40)]
        page.wait_for_selector("text=engine calls run")
        browser.wait_until("name => document.querySelector('.parts').textContent.includes(name)", OTHER)
        for chosen in ("", OTHER, MODEL):
            page.select_option("select[name=model]", chosen)
            shown = page.evaluate(READ_FIGURES)
            tiles = dict(shown["tiles"])
            assert tiles["Texts per second"] == shown["latest"]["Texts per second"][0]
            assert tiles["p99 of a request"] == shown["latest"]["Time of a request"][2]
            assert tiles["Waiting texts take"] == shown["latest"]["How long waiting texts take"][0]
            assert tiles["Memory"] == shown["latest"]["Memory of the process"][0]
            calls = shown["latest"]["Engine calls at a time, and cores in use"][0]
            assert f"engine calls run {calls} at a time" in shown["sentence"]
            if "for about" in shown["sentence"]:
                assert f"for about {tiles['Waiting texts take']}" in shown["sentence"]
            whole = [title for title in shown["titles"] if title.endswith("whole server")]
            assert len(whole) == (6 if chosen else 0)
        for one in sent:
            one.result()


# One moment of the page: its sentence, its tiles, and the last values of its charts.
READ_FIGURES = """() => {
  const textsOf = (found) => [...found].map((each) => each.textContent);
  const figures = [...document.querySelectorAll(".charts figure")];
  const titleOf = (figure) => figure.querySelector("figcaption").textContent;
  const valuesOf = (figure) => textsOf(figure.querySelectorAll(".latest span")).map(
    (text) => /([\\d.,]+|–)( (ms|s|min|kB|MB|GB))?%?$/.exec(text)[0].trim());
  const names = (figure) => titleOf(figure).replace(/, (whole server|[^,]+)$/, (end, name) =>
    (name === "whole server" || name === document.querySelector("select[name=model]").value ? "" : end));
  return {
    sentence: document.querySelector(".limit").textContent,
    tiles: [...document.querySelectorAll(".tiles > div")].map(
      (tile) => textsOf(tile.querySelectorAll("dt, strong"))),
    titles: figures.map(titleOf),
    latest: Object.fromEntries(figures.map((figure) => [names(figure), valuesOf(figure)])),
  };
}"""


def send_texts(api: httpx.Client, model: str, number: int) -> None:
    """Send some requests, one after the other."""
    for place in range(8):
        texts = [f"{number} {place} {text}" for text in TEXTS]
        assert api.post("/v1/embeddings", json={"model": model, "input": texts}).status_code == 200
