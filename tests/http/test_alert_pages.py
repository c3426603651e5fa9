"""The pages of the alerts: for whoever is woken, without a key, scripts or anything from elsewhere."""

import re
from dataclasses import replace
from urllib.parse import urljoin

import httpx
import pytest

from support.http_server import QUIET, serve_in_thread

NAME = "VecmillErrors"
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


def follow(client: httpx.Client, page: str) -> dict[str, int]:
    """The status of each link of a page, by its address."""
    links = re.findall('href="([^"]*)"', client.get(page).text)
    found = {urljoin(page, link) for link in links}
    assert found, page
    return {link: client.get(link).status_code for link in found}


@pytest.mark.parametrize("prefix", ["", "/a/b"])
def test_the_pages_lead_to_each_other(prefix: str) -> None:
    with (
        serve_in_thread(replace(QUIET, url_prefix=prefix, console=False)) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        for page in (f"{prefix}/alerts", f"{prefix}/alerts/", f"{prefix}/alerts/{NAME}"):
            statuses = follow(client, page)
            assert set(statuses.values()) == {200}, statuses
            assert all(link.startswith(f"{prefix}/alerts") for link in statuses)


def test_no_key_is_needed_and_a_link_elsewhere_may_lead_here() -> None:
    with serve_in_thread(replace(QUIET, api_key=("key-1",), metrics_key=("key-2",))) as server:
        for path in ("/alerts", f"/alerts/{NAME}"):
            assert server.client.get(path, headers=LINK).status_code == 200
            assert server.client.post(path).status_code == 401


def test_a_page_has_no_scripts_and_loads_nothing() -> None:
    with serve_in_thread() as server:
        page = server.client.get(f"/alerts/{NAME}")
        assert "<script" not in page.text
        assert "src=" not in page.text
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["Nothing", "<script>", "..%2f..%2fetc%2fpasswd", "vecmillerrors"])
def test_an_unknown_alert_has_no_page(name: str) -> None:
    with serve_in_thread() as server:
        answer = server.client.get(f"/alerts/{name}")
        assert answer.status_code == 404
        assert "<script>" not in answer.text
