"""The inference routes: the endpoints that run a model, at the paths of every dialect.

The paths include the version prefixes of clients; `middleware.paths` removes doubled versions (`/v1/v1`).
"""

from starlette.routing import Route

from vecmill_server.app.routes.endpoint import Endpoint
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.service.service import Service


def inference_routes(service: Service) -> list[Route]:
    """Return the routes, the most frequent first, because the router tries routes in order."""
    return [
        Route(path, Endpoint(service, route), methods=["POST"], name=route.name)
        for path, route in routes_by_path().items()
    ]
