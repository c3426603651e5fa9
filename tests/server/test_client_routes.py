"""The table of the routes that clients call is true: each is served, or refused with a sentence."""

from collections.abc import Iterator

import pytest

from pages.client_routes_page import PAGE, written_page
from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill_server.app import describe_routes
from vecmill_server.app.client_routes import TABLE
from vecmill_server.app.openapi.operations import Api
from vecmill_server.base.settings import ServerSettings

SERVED = [(api, route) for api, routes in TABLE.items() for route in routes.served]
REFUSED = [
    (api, route) for api, routes in TABLE.items() for refused in routes.refused.values() for route in refused
]
# Groups of operations that are no API of clients.
NO_API = {Api.BATCHES, Api.SERVER, Api.OTHER_PATHS}


@pytest.fixture(scope="module")
def operations() -> dict[str, set[Api]]:
    """The APIs of each described operation."""
    paths = describe_routes(ServerSettings(lame_duck_s=0))["paths"]
    return {
        f"{method.upper()} {path}": set(operation["tags"])
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serve_in_thread(ServerSettings(lame_duck_s=0)) as server:
        yield server


def test_every_api_is_in_the_table() -> None:
    assert set(TABLE) == set(Api) - NO_API


def test_what_the_table_serves_is_described(operations: dict[str, set[Api]]) -> None:
    assert {route for _, route in SERVED} <= operations.keys()
    assert set(SERVED).isdisjoint(REFUSED)


def test_a_route_of_each_api_is_described_for_it(operations: dict[str, set[Api]]) -> None:
    found = {api for api, route in SERVED if api in operations[route]}
    assert found == set(TABLE)


def test_what_is_not_served_says_what_is(server: HttpServer) -> None:
    for _, route in REFUSED:
        method, path = route.split(" ")
        answer = server.client.request(method, path.replace("{id}", MODEL).replace("{", "").replace("}", ""))
        assert answer.status_code == 404, route
        if method != "HEAD":
            for words in (f"{path} of", "is not served: ", "Served of "):
                assert words in answer.text, route


def test_the_error_body_is_that_of_the_api(server: HttpServer) -> None:
    for path in ("/api/chat", "/vectors"):
        assert isinstance(server.client.post(path).json()["error"], str)
    assert server.client.post("/completion").json()["error"]["code"] == 404
    assert (
        server.client.post("/v1/chat").json()["message"].startswith("POST /v1/chat of Cohere is not served")
    )


def test_a_base_url_without_the_version_is_refused_too(server: HttpServer) -> None:
    answer = server.client.post("/chat/completions", json={"messages": []})
    assert answer.status_code == 404
    assert "Served of OpenAI: POST /v1/embeddings" in answer.json()["error"]["message"]


def test_a_refusal_needs_the_key_first() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=("a-key",))) as server:
        assert server.client.post("/v1/chat/completions").status_code == 401


@pytest.mark.parametrize("path", ["/v1/models/nobody/x", "/models/nobody", "/v1/inference/nobody"])
def test_below_a_catch_all_an_unknown_path_is_404(server: HttpServer, path: str) -> None:
    """A 405 would tell the client that the path is right."""
    assert server.client.request("PATCH", path).status_code == 404
    assert server.client.request("PATCH", f"/v1/models/{MODEL}").status_code == 405


def test_the_page_lists_the_table_as_it_is() -> None:
    assert PAGE.read_text("utf-8") == written_page()
