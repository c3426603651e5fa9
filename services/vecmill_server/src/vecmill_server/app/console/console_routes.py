"""The routes of the page's assets, of the state of the server, and of the report on the models.

Only the page asks for them, and they change with it: the OpenAPI document leaves them out.
"""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.app.console.console_page import ASSETS_PATH, ConsolePage
from vecmill_server.app.console.model_report import report_model
from vecmill_server.app.console.page_assets import media_type
from vecmill_server.app.routes.health import tell_readiness
from vecmill_server.base.errors import UnknownRoute
from vecmill_server.base.json_io import encode_json
from vecmill_server.base.shared_page import SharedPage, call_in_thread
from vecmill_server.service.service import Service

# Reports are made at most this long before they are asked for.
REPORTS_AGE_S = 1.0

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

    def write_reports() -> bytes:
        return encode_json({"models": [report_model(model) for model in service.catalog]})

    # In a thread, because the fingerprint of a model may have to be read again.
    reports = SharedPage(
        partial(call_in_thread, "vecmill-reports", write_reports), REPORTS_AGE_S, service.page_clock
    )

    async def models(request: Request) -> Response:
        return Response(await reports.read(), media_type="application/json")

    async def state(request: Request) -> Response:
        # Not /readyz: a server that is asked there waits for load balancers when it is stopped.
        return tell_readiness(service)

    return [
        Route("/console/state.json", state, methods=["GET"], name="console_state"),
        Route("/console/models.json", models, methods=["GET"], name="console_models"),
        Route(f"{ASSETS_PATH}/{{version}}/{{name:path}}", asset, methods=["GET"], name="console_asset"),
    ]
