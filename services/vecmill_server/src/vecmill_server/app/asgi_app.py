"""The ASGI application: the routes, wrapped in the middleware."""

from collections.abc import Sequence
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from vecmill_server.app.browser_page import BrowserPage
from vecmill_server.app.console.console_page import ConsolePage
from vecmill_server.app.console.console_routes import console_routes
from vecmill_server.app.middleware.browsers import Browsers
from vecmill_server.app.middleware.error_handler import ErrorHandler
from vecmill_server.app.middleware.keys import Keys
from vecmill_server.app.middleware.origins import OriginRules, Origins
from vecmill_server.app.middleware.paths import Paths
from vecmill_server.app.middleware.request_contexts import RequestContexts
from vecmill_server.app.routes import batches, docs, health, llama_server, models, prometheus, xinference
from vecmill_server.app.routes.batches import batches_routes
from vecmill_server.app.routes.docs import docs_routes
from vecmill_server.app.routes.health import health_routes
from vecmill_server.app.routes.inference import inference_routes
from vecmill_server.app.routes.llama_server import llama_routes
from vecmill_server.app.routes.models import models_routes
from vecmill_server.app.routes.prometheus import metrics_routes
from vecmill_server.app.routes.xinference import xinference_routes
from vecmill_server.base.address import Address
from vecmill_server.base.settings import ServerSettings
from vecmill_server.openapi.document import describe_api
from vecmill_server.service.api_keys import ApiKeys
from vecmill_server.service.service import Service

EXPOSED_HEADERS = (
    "x-request-id",
    "request-id",
    "x-compute-time",
    "server-timing",
    "x-truncated-inputs",
    "x-unknown-fields",
    "retry-after",
    "retry-after-ms",
)


def create_app(
    service: Service, address: Address | None = None, routes: Sequence[Route] | None = None
) -> ASGIApp:
    """Return the application for `service`. The server listens on `address`, by default that of the settings.

    `routes` are by default those of `list_routes`. `runner` or `lifespan`, not the application, loads and
    closes the models.
    """
    settings = service.settings
    app: ASGIApp = Router(list_routes(service) if routes is None else routes, redirect_slashes=False)
    app = Origins(app, OriginRules.of(settings, address))
    if service.keys is not None or settings.metrics_key:
        metrics_keys = ApiKeys(settings.metrics_key) if settings.metrics_key else None
        app = Keys(app, service.keys, metrics_keys)
    app = Browsers(Paths(app, settings.url_prefix), BrowserPage(service))
    app = ErrorHandler(app, service.body_limits)
    if settings.cors_origin:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origin,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )
    return RequestContexts(
        app, service.metrics, service.drain, access_log=settings.access_log, tracer=service.tracer
    )


def describe_routes(settings: ServerSettings, model: str | None = None) -> dict[str, Any]:
    """Return the OpenAPI document of every route.

    `model` is the name of a served model, for examples.
    """
    rooms = (batches, models, health, llama_server, xinference, prometheus, docs)
    return describe_api(settings, [room.PATHS for room in rooms], model)


def list_routes(service: Service) -> list[Route]:
    """Return every route, the most frequent first, because the router tries routes in order."""
    plain = BrowserPage(service)
    console = ConsolePage(plain) if service.settings.console else None
    routes = [
        *inference_routes(service),
        *models_routes(service),
        *health_routes(service, console or plain),
        *llama_routes(service),
        *xinference_routes(service),
        *batches_routes(service),
        *docs_routes(service, describe_routes),
        *console_routes(service, console),
    ]
    return [*routes, *metrics_routes(service, routes)]
