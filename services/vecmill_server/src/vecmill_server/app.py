"""The ASGI application: the routes inside their middleware."""

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from vecmill_server.middleware.errors import Errors
from vecmill_server.middleware.exchanges import Exchanges
from vecmill_server.middleware.keys import Keys
from vecmill_server.middleware.paths import Paths
from vecmill_server.routes.batches import batches_routes
from vecmill_server.routes.computing import computing_routes
from vecmill_server.routes.docs import docs_routes
from vecmill_server.routes.health import health_routes
from vecmill_server.routes.metrics import metrics_routes
from vecmill_server.routes.models import models_routes
from vecmill_server.service import Service

EXPOSED_HEADERS = (
    "x-request-id",
    "request-id",
    "x-compute-time",
    "server-timing",
    "retry-after",
    "retry-after-ms",
)


def create_app(service: Service) -> ASGIApp:
    """The application for `service`. It neither loads nor closes the models: `runner` does."""
    settings = service.settings
    app: ASGIApp = Router(list_routes(service), redirect_slashes=False)
    if settings.api_key:
        app = Keys(app, settings.api_key)
    app = Errors(Paths(app, settings.url_prefix), service.body_limits)
    if settings.cors_origin:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origin,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )
    return Exchanges(app, service.metrics, service.drain, access_log=settings.access_log)


def list_routes(service: Service) -> list[Route]:
    """Every route, in the order of how often they are asked for: the router tries one after the other.

    Each family is described by its module of `openapi`.
    """
    routes = [
        *computing_routes(service),
        *models_routes(service),
        *health_routes(service),
        *batches_routes(service),
        *docs_routes(service),
    ]
    return [*routes, *metrics_routes(service, routes)]
