"""The ASGI application: the gateway, and the routes behind it."""

from collections.abc import Sequence
from typing import Any

from starlette.routing import Route
from starlette.types import ASGIApp

from vecmill_server.app.browser_page import BrowserPage, ConsolePage
from vecmill_server.app.gateway import Gateway
from vecmill_server.app.openapi.document import describe_api
from vecmill_server.app.origins import OriginRules
from vecmill_server.app.routes import (
    accuracy,
    batches,
    catalog_changes,
    docs,
    health,
    models,
    other_servers,
    pinecone_models,
    prometheus,
)
from vecmill_server.app.routes.alerts import alerts_routes
from vecmill_server.app.routes.batches import batches_routes
from vecmill_server.app.routes.catalog_changes import catalog_routes
from vecmill_server.app.routes.console import console_routes
from vecmill_server.app.routes.docs import docs_routes
from vecmill_server.app.routes.endpoint import inference_routes
from vecmill_server.app.routes.health import health_routes
from vecmill_server.app.routes.models import models_routes
from vecmill_server.app.routes.other_servers import routes_of_other_servers
from vecmill_server.app.routes.pinecone_models import pinecone_models_routes
from vecmill_server.app.routes.prometheus import metrics_routes
from vecmill_server.base.settings import Address, ServerSettings
from vecmill_server.service.service import Service


def create_app(
    service: Service, address: Address | None = None, routes: Sequence[Route] | None = None
) -> ASGIApp:
    """Return the application for `service`. The server listens on `address`, by default that of the settings.

    `routes` are by default those of `list_routes`. `runner` or `LifespanApp`, not the application, loads and
    closes the models.
    """
    origins = OriginRules.of(service.settings, address)
    return Gateway(service, list_routes(service) if routes is None else routes, origins)


def describe_routes(settings: ServerSettings, model: str | None = None) -> dict[str, Any]:
    """Return the OpenAPI document of every route.

    `model` is the name of a served model, for examples.
    """
    rooms = (
        *(batches, catalog_changes, models, pinecone_models, accuracy),
        *(health, other_servers, prometheus, docs),
    )
    return describe_api(settings, [room.PATHS for room in rooms], model)


def list_routes(service: Service) -> list[Route]:
    """Return every route. Of several patterns that match a path, the first counts."""
    plain = BrowserPage(service)
    console = ConsolePage(plain) if service.settings.console else None
    routes = [
        *inference_routes(service),
        *models_routes(service),
        *pinecone_models_routes(service),
        *catalog_routes(service),
        *health_routes(service, console or plain),
        *routes_of_other_servers(service),
        *batches_routes(service),
        *docs_routes(service, describe_routes),
        *console_routes(service, console),
        *alerts_routes(),
    ]
    return [*routes, *metrics_routes(service, routes)]
