"""A browser gets the page at /, with all that it loads, and nothing of it needs a key or another host."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx

from console.page_modules import ASSETS
from support.http_server import MODEL, QUIET, serve_in_thread

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
MOST_BYTES = 300_000
POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
}


class Page(HTMLParser):
    """The tags of a page, and the text of its `pre`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        found = re.search("<pre>(.*?)</pre>", text, re.DOTALL)
        self.command = "" if found is None else unescape(found[1])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def values(self, tag: str, name: str) -> list[str]:
        return [value for each, found in self.tags if each == tag and (value := found.get(name))]


def load_all(client: httpx.Client, root: str = "/") -> dict[str, httpx.Response]:
    """The page and everything that it loads, also the modules that modules import, by URL."""
    page = client.get(root, headers=BROWSER)
    found = {root: page}
    parsed = Page(page.text)
    waiting = [*parsed.values("script", "src"), *parsed.values("link", "href")]
    while waiting:
        url = waiting.pop()
        if url in found:
            continue
        answer = found[url] = client.get(url)
        if url.endswith(".js"):
            imported = re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', answer.text)
            imported += re.findall(r'new URL\("(\.[^"]+\.js)", import\.meta\.url\)', answer.text)
            waiting += [urljoin(url, each) for each in imported]
    return found


def test_the_page_and_all_that_it_loads_are_served_and_small(client: httpx.Client) -> None:
    found = load_all(client)
    for url, answer in found.items():
        assert answer.status_code == 200, url
        assert answer.headers["x-content-type-options"] == "nosniff"
    names = {url.split("/", 4)[-1] for url in found if url != "/"}
    assert {name for name in names if name.endswith(".js")} == {
        str(file.relative_to(ASSETS)) for file in ASSETS.rglob("*.js")
    }
    types = {name.rpartition(".")[2]: found[url].headers["content-type"] for url in found for name in [url]}
    assert types["js"] == "text/javascript; charset=utf-8"
    assert types["css"] == "text/css; charset=utf-8"
    assert sum(len(answer.content) for answer in found.values()) < MOST_BYTES
    kept = {answer.headers["cache-control"] for url, answer in found.items() if url != "/"}
    assert kept == {"public, max-age=31536000, immutable"}
    assert found["/"].headers["cache-control"] == "no-store"


def test_the_page_asks_first_for_the_modules_of_its_first_view(client: httpx.Client) -> None:
    page = Page(client.get("/", headers=BROWSER).text)
    preloaded = page.values("link", "href")
    first = {url for url in preloaded if url.endswith(".js")}
    imported = {urljoin(url, name) for url in first for name in imports_of(client.get(url).text)}
    assert first == imported | set(page.values("script", "src"))
    views = {url.rpartition("/")[2] for url in first if "/views/" in url}
    assert views == {"try.js", "try_forms.js", "similarity.js"}


def imports_of(module: str) -> list[str]:
    """What a module needs before it runs."""
    return re.findall(r' from "(\.[^"]+)"', module)


def test_the_policy_allows_this_server_only_and_nothing_inline(client: httpx.Client) -> None:
    answer = client.get("/", headers=BROWSER)
    assert set(answer.headers["content-security-policy"].split("; ")) == POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["vary"] == "accept"
    page = Page(answer.text)
    assert all("src" in found for tag, found in page.tags if tag == "script")
    assert not [
        found for _, found in page.tags if any(name.startswith("on") or name == "style" for name in found)
    ]
    assert "style" not in {tag for tag, _ in page.tags}


def test_an_asset_that_does_not_exist_is_not_found(client: httpx.Client) -> None:
    version = Page(client.get("/", headers=BROWSER).text).values("script", "src")[0].split("/")[3]
    for name in ("nothing.js", "../page_assets.py", "index.html", "uplot/LICENSE", ""):
        assert client.get(f"/console/assets/{version}/{name}").status_code == 404, name
    old = client.get("/console/assets/000000000000/main.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-store")


def test_without_scripts_the_page_has_a_command_and_links(client: httpx.Client) -> None:
    page = Page(client.get("/", headers=BROWSER).text)
    assert page.command.startswith("curl http://127.0.0.1:")
    links = [link for link in page.values("a", "href") if link.startswith("/")]
    assert sorted(set(links)) == ["/docs", "/metrics", "/readyz"]
    for link in links:
        assert client.get(link, headers=BROWSER).status_code == 200


def test_programs_and_other_paths_get_what_they_got(client: httpx.Client) -> None:
    assert client.get("/", headers={"accept": "application/json"}).json()["status"] == "ready"
    assert "POST requests only" in client.get("/v1/embeddings", headers=BROWSER).text


def test_with_keys_the_page_opens_and_asks_for_one() -> None:
    with serve_in_thread(replace(QUIET, api_key=("secret",), url_prefix="/a")) as server:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as bare:
            for url, answer in load_all(bare, "/a/").items():
                assert answer.status_code == 200, url
        page = server.client.get("/", headers=BROWSER)
        assert 'data-needs-key="true"' in page.text
        assert Page(page.text).values("script", "src")[0].startswith("/a/console/assets/")
        assert server.client.get("/console/models.json").status_code == 401
        assert server.client.get("/console/state.json").status_code == 200
        key = {"authorization": "Bearer secret"}
        assert server.client.get("/console/models.json", headers=key).status_code == 200


def test_the_operator_can_turn_the_page_off() -> None:
    with serve_in_thread(replace(QUIET, console=False)) as server:
        assert "<h1>vecmill</h1>" in server.client.get("/", headers=BROWSER).text
        assert "script" not in server.client.get("/", headers=BROWSER).text
        for path in ("/console/models.json", "/console/state.json", "/console/assets/0/main.js"):
            assert server.client.get(path).status_code == 404


def test_the_report_has_the_facts_of_each_model(client: httpx.Client) -> None:
    (report,) = client.get("/console/models.json").json()["models"]
    assert report["name"] == MODEL
    assert report["facts"]["state"] == "ready"
    assert report["facts"]["engine"] == "fake"
    assert report["facts"]["texts in a request, at most"] == 2_048
    assert report["optimized"] is None


def test_people_who_look_are_no_load_balancer_that_a_stop_waits_for() -> None:
    with serve_in_thread() as server:
        assert server.client.get("/", headers=BROWSER).status_code == 200
        state = server.client.get("/console/state.json").json()
        assert server.service.drain.probed_at == float("-inf")
        assert {**server.client.get("/readyz").json(), "unix": None} == {**state, "unix": None}
        assert server.service.drain.probed_at > 0


def test_what_only_the_page_loads_is_no_part_of_the_api(client: httpx.Client) -> None:
    assert not [path for path in client.get("/openapi.json").json()["paths"] if path.startswith("/console")]
