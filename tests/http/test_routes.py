"""The routes that compute nothing: models, probes, metrics, the description and its page."""

import re

import httpx
import pytest

from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings


@pytest.mark.parametrize("path", ["/models", "/v1/models", "/v1/models/"])
def test_models_are_listed(client: httpx.Client, path: str) -> None:
    document = client.get(path).json()
    assert document["object"] == "list"
    (model,) = document["data"]
    assert model["id"] == MODEL
    assert model["object"] == "model"
    assert isinstance(model["created"], int)
    assert model["max_model_len"] == 256


@pytest.mark.parametrize(
    "name", [MODEL, f"sentence-transformers/{MODEL}", f"sentence-transformers%2F{MODEL}"]
)
@pytest.mark.parametrize("path", ["/models", "/v1/models"])
def test_one_model_is_found_by_any_of_its_names(client: httpx.Client, path: str, name: str) -> None:
    assert client.get(f"{path}/{name}").json()["id"] == MODEL


@pytest.mark.promise("safe-names")
def test_an_unknown_model_is_404(client: httpx.Client) -> None:
    answer = client.get("/v1/models/nobody/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.mark.promise("honest-health")
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_probes_say_yes(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.json()["unix"] > 1.6e9
    assert client.head(path).status_code == 200


def test_metrics_have_the_type_that_prometheus_asks_for(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE vecmill_http_requests_total counter" in answer.text


def test_the_page_needs_no_other_host(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    parts = re.findall(r'<(?:script|link) [^>]*?(?:src|href)="([^"]+)"', page.text)
    assert len(parts) == 6
    for part in parts:
        assert part.startswith("/docs/")
        assert client.get(part).status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert 'new URL("../openapi.json", document.currentScript.src)' in client.get("/docs/start.js").text
    assert client.get("/docs/secrets").status_code == 404


def test_the_description_tells_of_every_route(server: HttpServer) -> None:
    described = set(server.client.get("/openapi.json").json()["paths"])
    for path in described:
        answer = server.client.request("PUT", re.sub(r"{\w+}", MODEL, path))
        assert answer.status_code == 405, path
    assert {"/v1/embeddings", "/v2/rerank", "/v1/models/{id}", "/readyz", "/metrics"} <= described


@pytest.mark.parametrize(("path", "status"), [("/v2/embeddings", 404), ("/embeddings/x", 404)])
def test_unknown_routes_are_404_in_json(client: httpx.Client, path: str, status: int) -> None:
    answer = client.post(path, json={"input": "a"})
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["detail"] == answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/embeddings", "POST"),
        ("DELETE", "/models", "GET, HEAD"),
        ("PUT", "/", "GET, HEAD, OPTIONS, POST"),
    ],
)
def test_wrong_methods_are_405_and_say_which_are_right(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert "message" in answer.json()["error"]


def test_everything_lives_under_the_prefix() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, url_prefix="/a/b")) as server:
        assert server.client.post("/v1//embeddings", json={"input": "a"}).status_code == 200
        assert server.client.get("/readyz").status_code == 200
        assert server.client.get("/docs").text.count('"/a/b/docs/') == 6
        base = f"http://127.0.0.1:{server.port}"
        for path in ("/readyz", "/a/bc/readyz", "/a/readyz", "/"):
            assert httpx.get(base + path).status_code == 404


def test_pages_of_allowed_origins_may_call() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, cors_origin=("https://here.example",))) as server:
        preflight = {
            "origin": "https://here.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        answer = server.client.options("/embeddings", headers=preflight)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://here.example"
        wrong = server.client.post("/embeddings", content=b"{", headers={"origin": "https://here.example"})
        assert wrong.status_code == 400
        assert wrong.headers["access-control-allow-origin"] == "https://here.example"
        other = server.client.post(
            "/embeddings", json={"input": "a"}, headers={"origin": "https://x.example"}
        )
        assert "access-control-allow-origin" not in other.headers
