"""The origins that a real server accepts: pages elsewhere and DNS rebinding are refused, programs are not."""

import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.http_server import QUIET, HttpServer, serve_in_thread

PAGE = {"origin": "https://attacker.example", "content-type": "text/plain;charset=UTF-8"}
BODY = json.dumps({"input": "hello"})
KEY = "a-key-of-the-server"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.promise("foreign-pages")
@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/v1/files", "/v1/batches", "/none"])
def test_a_page_elsewhere_cannot_post(client: httpx.Client, path: str) -> None:
    answer = client.post(path, content=BODY, headers=PAGE)
    assert refusal(answer) == (403, "foreign_origin")
    assert "--cors-origin https://attacker.example" in answer.json()["message"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.promise("foreign-pages")
def test_a_page_elsewhere_cannot_post_to_ollama_s_paths(client: httpx.Client) -> None:
    answer = client.post("/api/embed", content=BODY, headers=PAGE)
    assert answer.status_code == 403
    assert "--cors-origin https://attacker.example" in answer.json()["error"]
    assert "access-control-allow-origin" not in answer.headers


def test_its_preflight_and_its_deletes_are_refused(client: httpx.Client) -> None:
    preflight = {"origin": "https://attacker.example", "access-control-request-method": "POST"}
    assert refusal(client.options("/v1/embeddings", headers=preflight)) == (403, "foreign_origin")
    assert refusal(client.delete("/v1/files/file-x", headers=PAGE)) == (403, "foreign_origin")


@pytest.mark.promise("foreign-pages")
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/files", "/docs", "/health"])
def test_a_rebound_name_reads_nothing(server: HttpServer, path: str) -> None:
    headers = {"host": f"attacker.example:{server.port}"}
    assert refusal(server.client.get(path, headers=headers)) == (403, "foreign_host")
    headers["origin"] = f"http://attacker.example:{server.port}"
    assert refusal(server.client.post(path, content=BODY, headers=headers)) == (403, "foreign_host")


def test_programs_go_on_as_before(server: HttpServer) -> None:
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        answer = server.client.post("/v1/embeddings", content=BODY, headers={"content-type": kind})
        assert answer.status_code == 200
    assert server.exchange(b"GET /v1/models HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    own = f"http://127.0.0.1:{server.port}"
    assert server.client.post("/v1/embeddings", content=BODY, headers={"origin": own}).status_code == 200


def test_a_key_opens_the_doors_and_nothing_else_does() -> None:
    with serve_in_thread(replace(QUIET, api_key=(KEY,))) as server:
        rebound = {"host": "attacker.example"}
        for headers in (PAGE, rebound):
            answer = server.client.post("/v1/embeddings", content=BODY, headers=headers)
            assert refusal(answer) == (401, "invalid_api_key")
            with_key = {**headers, "authorization": f"Bearer {KEY}"}
            assert server.client.post("/v1/embeddings", content=BODY, headers=with_key).status_code == 200
        assert refusal(server.client.get("/metrics", headers=rebound)) == (403, "foreign_host")


def test_the_proxys_name_is_allowed_by_an_option() -> None:
    with serve_in_thread(replace(QUIET, allowed_host=("embed.example.com",))) as server:
        for name, status in (("embed.example.com", 200), ("other.example.com", 403)):
            assert server.client.get("/v1/models", headers={"host": name}).status_code == status


@pytest.mark.promise("foreign-pages")
def test_an_unknown_page_does_not_fill_the_disk(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        answer = server.client.post(
            "/v1/files",
            data={"purpose": "batch"},
            files={"file": ("a", b"x" * 200_000)},
            headers={"origin": "https://attacker.example"},
        )
        assert answer.status_code == 403
        assert server.client.get("/v1/files").json()["data"] == []
        assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.parametrize(
    "allowed", ["*", "https://here.example", "https://*.example", "https://here.example:443"]
)
def test_a_page_may_call_a_private_network(allowed: str) -> None:
    """Chrome asks so before a public page calls a private or loopback address."""
    asked = {
        "origin": "https://here.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    name = "access-control-allow-private-network"
    with serve_in_thread(replace(QUIET, cors_origin=(allowed,))) as server:
        answer = server.client.options("/v1/embeddings", headers=asked)
        assert (answer.status_code, answer.headers[name]) == (200, "true")
        del asked["access-control-request-private-network"]
        assert name not in server.client.options("/v1/embeddings", headers=asked).headers
        asked |= {"origin": "https://attacker.org", "access-control-request-private-network": "true"}
        if allowed != "*":
            refused = server.client.options("/v1/embeddings", headers=asked)
            assert (refused.status_code, name in refused.headers) == (400, False)


def test_an_allowed_page_may_read_the_headers_about_its_request() -> None:
    origin = "https://here.example"
    with serve_in_thread(replace(QUIET, cors_origin=(origin,))) as server:
        answer = server.client.post(
            "/v1/embeddings", json={"input": "cat " * 300, "inputt": 1}, headers={"origin": origin}
        )
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    notices = {"x-truncated-inputs", "x-unknown-fields"}
    assert notices <= exposed
    assert notices <= set(answer.headers)
