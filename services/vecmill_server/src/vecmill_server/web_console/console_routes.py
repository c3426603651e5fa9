"""The routes of the page's assets, of the state of the server, and of the report on the models.

Only the page asks for them, and they change with it: the OpenAPI document leaves them out.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.errors import UnknownRoute
from vecmill_server.json_io import encode_json
from vecmill_server.routes.health import tell_readiness
from vecmill_server.service import Service
from vecmill_server.web_console.console_page import ASSETS_PATH, ConsolePage
from vecmill_server.web_console.model_report import report_model
from vecmill_server.web_console.page_assets import media_type

# The address of an asset changes with its content.
_KEPT = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}


def console_routes(service: Service, page: ConsolePage | None) -> list[Route]:
    """Return the routes of `page`; none without a page."""
    if page is None:
        return []
    assets = page.assets

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        content = assets.contents.get(name)
        if content is None:
            raise UnknownRoute("The page has no asset with this name.")
        headers = _KEPT if request.path_params["version"] == assets.version else {"cache-control": "no-store"}
        return Response(content, media_type=media_type(name), headers=headers)

    async def models(request: Request) -> Response:
        # In a thread, because the fingerprint of a model may have to be read again.
        reports = [await asyncio.to_thread(report_model, model) for model in service.catalog]
        return Response(encode_json({"models": reports}), media_type="application/json")

    async def state(request: Request) -> Response:
        # Not /readyz: a server that is asked there waits for load balancers when it is stopped.
        return tell_readiness(service)

    return [
        Route("/console/state.json", state, methods=["GET"], name="console_state"),
        Route("/console/models.json", models, methods=["GET"], name="console_models"),
        Route(f"{ASSETS_PATH}/{{version}}/{{name:path}}", asset, methods=["GET"], name="console_asset"),
    ]
