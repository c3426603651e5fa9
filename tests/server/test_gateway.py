"""The gateway finds the route that the router would find, and leaves no memory of large requests behind."""

from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from support.http_server import QUIET, build_service, serve_in_thread, wait_until
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.app import gateway, list_routes
from vecmill_server.app.gateway import index_routes
from vecmill_server.base import byte_budget


async def answer(_request: Request) -> Response:
    raise NotImplementedError


def route(path: str, *methods: str) -> Route:
    return Route(path, answer, methods=list(methods))


def first_match(routes: Sequence[Route], method: str, path: str) -> Route:
    """The route that starlette's router takes."""
    scope = {"type": "http", "method": method, "path": path}
    return next(each for each in routes if each.matches(scope)[0] is Match.FULL)


def test_the_first_of_routes_with_a_path_counts() -> None:
    routes = [route("/a", "GET"), route("/a", "GET", "POST")]
    assert index_routes(routes) == {
        ("GET", "/a"): routes[0],
        ("HEAD", "/a"): routes[0],
        ("POST", "/a"): routes[1],
    }


def test_a_path_that_an_earlier_pattern_matches_is_left_to_the_router() -> None:
    exact = route("/models/all", "POST", "DELETE")
    assert index_routes([route("/models/{id:path}", "POST"), exact]) == {("DELETE", "/models/all"): exact}
    assert len(index_routes([exact, route("/models/{id:path}", "POST")])) == 2


def test_every_path_of_the_server_goes_to_the_route_that_the_router_finds() -> None:
    routes = list_routes(build_service(QUIET, [(describe_model(locate_model()), None)]))
    found = index_routes(routes)
    assert len(found) > 100
    assert all(first_match(routes, *place) is exact for place, exact in found.items())


@pytest.mark.parametrize(("texts", "status"), [(["a" * 30_000], 200), (["a" * 30_000, None], 400)])
def test_memory_goes_back_to_the_system_when_a_large_request_has_ended(
    texts: list[str | None], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(byte_budget, "LARGEST_KEPT_BYTES", 25_000)
    with serve_in_thread() as server:
        monkeypatch.setattr(gateway, "return_freed_memory", lambda: held.append(server.service.budget.held))
        assert server.client.post("/v1/embeddings", json={"input": "small"}).status_code == 200
        assert held == []
        assert server.client.post("/v1/embeddings", json={"input": texts}).status_code == status
        wait_until(lambda: len(held) == 1)
        assert held[0] < 25_000
