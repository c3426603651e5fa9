"""A person who opens the server in a browser gets a page that helps; programs get JSON as before."""

import base64
import hashlib
import re
import shlex
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import httpx
import pytest

from support.http_server import (
    MODEL,
    QUIET,
    SlowToLoad,
    build_service,
    fake_engine,
    run_in_thread,
    serve_in_thread,
)
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.dialects.dialect_routes import routes_by_path

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}
PROGRAMS = ["*/*", "application/json", "application/json, text/plain, */*", "text/html, application/json"]
PLAIN = replace(QUIET, console=False)
HOSTILE = "<script>alert('x')</script>&\"'"


class Tags(HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def command_of(page: str) -> list[str]:
    """The command that the page shows, as a shell reads it."""
    found = re.search("<pre>(.*?)</pre>", page, re.DOTALL)
    assert found is not None
    return shlex.split(unescape(found[1]))


def is_page(answer: httpx.Response) -> bool:
    return answer.headers["content-type"].startswith("text/html") and "<h1>vecmill</h1>" in answer.text


def test_without_the_console_the_root_is_a_page_with_links_that_work() -> None:
    with serve_in_thread(PLAIN) as server:
        answer = server.client.get("/", headers=BROWSER)
        assert answer.status_code == 200
        assert is_page(answer)
        assert MODEL in answer.text
        links = [attributes["href"] for tag, attributes in Tags(answer.text).found if tag == "a"]
        assert links == ["/docs", "/readyz", "/metrics"]
        for link in links:
            assert server.client.get(str(link), headers=BROWSER).status_code == 200


@pytest.mark.parametrize("prefix", ["", "/tools"])
@pytest.mark.parametrize("path", ["/console", "/console/"])
def test_the_address_that_people_type_leads_to_the_console(prefix: str, path: str) -> None:
    with serve_in_thread(replace(QUIET, url_prefix=prefix, api_key=("key",))) as server:
        answer = server.client.get(path, headers=BROWSER, follow_redirects=False)
        assert (answer.status_code, answer.headers.get("location")) == (307, f"{prefix}/")


def test_without_the_console_its_address_is_not_found() -> None:
    with serve_in_thread(PLAIN) as server:
        assert server.client.get("/console", headers=BROWSER).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in routes_by_path()
        if "{" not in path and path != "/" and not path.startswith("/models/")
    ],
)
def test_a_post_route_shows_a_command_for_it(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert is_page(answer)
    assert "POST requests only" in answer.text
    url = command_of(answer.text)[1]
    assert url == f"http://127.0.0.1:{client.base_url.port}{path}"


def test_the_command_is_answered(client: httpx.Client) -> None:
    for path in ("/v1/embeddings", "/rerank", "/openai/deployments/all-MiniLM-L6-v2/embeddings", "/"):
        command = command_of(client.get(path, headers=BROWSER).text)
        done = subprocess.run([*command, "--silent"], capture_output=True, check=True, timeout=20)
        assert b'"error"' not in done.stdout, path


def test_unknown_paths_and_missing_keys_are_pages_too() -> None:
    with serve_in_thread(replace(QUIET, api_key=("secret",), url_prefix="/a")) as server:
        missing = server.client.get("/v1/embeddings", headers=BROWSER)
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
        assert is_page(missing)
        assert "API key is required" in missing.text
        assert "authorization: Bearer YOUR_KEY" in command_of(missing.text)
        headers = {**BROWSER, "authorization": "Bearer secret"}
        unknown = server.client.get("/nowhere", headers=headers)
        assert unknown.status_code == 404
        assert is_page(unknown)
        assert 'href="/a/docs"' in unknown.text
        outside = httpx.get(f"http://127.0.0.1:{server.port}/", headers=headers)
        assert outside.status_code == 404
        assert is_page(outside)


@pytest.mark.parametrize("accept", PROGRAMS)
def test_programs_get_json(client: httpx.Client, accept: str) -> None:
    for path in ("/", "/v1/embeddings", "/nowhere"):
        answer = client.get(path, headers={"accept": accept})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()


def test_a_post_of_a_browser_gets_json(client: httpx.Client) -> None:
    for path in ("/v1/embeddings", "/nowhere", "/readyz"):
        assert client.post(path, content=b"{", headers=BROWSER).headers["content-type"] == "application/json"


def test_other_errors_and_other_pages_stay_as_they_are(client: httpx.Client) -> None:
    assert client.get("/readyz", headers=BROWSER).json()["status"] == "ready"
    assert client.get("/v1/models/nobody", headers=BROWSER).json()["error"]["code"] == "model_not_found"
    rebound = client.get("/", headers={**BROWSER, "host": "attacker.example"})
    assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "foreign_host")


def test_the_page_may_load_and_run_nothing(client: httpx.Client) -> None:
    for path in ("/nowhere", "/v1/embeddings"):
        answer = client.get(path, headers=BROWSER)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        for rule in ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
            assert rule in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["vary"] == "accept"
        tags = Tags(answer.text).found
        assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "form", "object"}
        assert not [attributes for _, attributes in tags if {"style", "onclick", "src"} & attributes.keys()]


def test_the_style_is_the_one_that_the_policy_allows(client: httpx.Client) -> None:
    answer = client.get("/v1/embeddings", headers=BROWSER)
    found = re.search("<style>(.*?)</style>", answer.text, re.DOTALL)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["content-security-policy"]


def test_names_and_headers_are_only_text_on_the_page() -> None:
    description = replace(describe_model(locate_model()), name=HOSTILE)
    service = build_service(PLAIN, [(description, fake_engine(description))])
    with run_in_thread(service) as (port, _), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        plain = {tag for tag, _ in Tags(client.get("/", headers=BROWSER).text).found}
        for path in ("/", f"/openai/deployments/{quote(HOSTILE)}$(id)/embeddings", f"/{quote(HOSTILE)}"):
            for host in ("localhost", "a'b", "<b>", 'x"y', "$(id)", "`id`"):
                answer = client.get(path, headers={**BROWSER, "host": host})
                if not is_page(answer):
                    assert answer.status_code in (400, 403)
                    continue
                assert HOSTILE not in answer.text
                assert {tag for tag, _ in Tags(answer.text).found} <= plain | {"strong"}
                command = command_of(answer.text)
                assert (command[0], command[2], len(command)) == ("curl", "-d", 4)
                assert re.fullmatch(r"http://(localhost|127\.0\.0\.1:\d+)/[\w/.%$()~-]*", command[1]), command


def test_the_page_of_a_server_that_is_loading_has_the_status_of_the_probe() -> None:
    engine = SlowToLoad()
    with serve_in_thread(PLAIN, engine=engine, wait=False) as server:
        try:
            answer = server.client.get("/", headers=BROWSER)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert is_page(answer)
            assert f"{MODEL}: loading" in answer.text
        finally:
            engine.may_load.set()
