"""The gateway finds the route that the router would find, whatever the order of exact paths and patterns."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from support.http_server import QUIET, build_service
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.app import list_routes
from vecmill_server.app.gateway import index_routes


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
