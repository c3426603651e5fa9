"""The routes of the OpenAPI document, `/openapi.json`, and of the page that renders it, `/docs`."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.errors import UnknownRoute
from vecmill_server.json_io import encode_json
from vecmill_server.json_schema import STRING
from vecmill_server.openapi.operations import Paths, as_json, get, path_parameter
from vecmill_server.openapi.response_headers import headers
from vecmill_server.service import Service
from vecmill_server.settings import ServerSettings

# Allows the page to load only from this server, and no other page to show it in a frame.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>vecmill API</title>
<link rel="stylesheet" href="{prefix}/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<noscript>This page needs JavaScript. /openapi.json has the same content for programs.</noscript>
<script src="{prefix}/docs/swagger-ui-bundle.js"></script>
<script src="{prefix}/docs/start.js"></script>
</body>
</html>
"""

# The groups are closed at first, and the examples can be sent without a further click.
START = """SwaggerUIBundle({{
  url: "{prefix}/openapi.json",
  dom_id: "#api",
  validatorUrl: null,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
}});
"""


def docs_routes(
    service: Service, describe: Callable[[ServerSettings, str | None], Mapping[str, Any]]
) -> list[Route]:
    """Return the routes of the document that `describe` returns, of the page, and of the page's assets.

    `describe` is called once, with the settings and the name of the first model.
    """
    settings = service.settings
    prefix = settings.url_prefix

    @cache
    def document() -> bytes:
        first = next((model.name for model in service.catalog), None)
        return encode_json(describe(settings, first))

    async def openapi(request: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def page(request: Request) -> Response:
        return Response(PAGE.format(prefix=prefix), media_type="text/html", headers=PAGE_HEADERS)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "start.js":
            return Response(START.format(prefix=prefix), media_type="text/javascript")
        if name not in ASSETS:
            raise UnknownRoute("The page has no asset with this name.")
        return Response(
            _read_asset(name), media_type=ASSETS[name], headers={"cache-control": "max-age=86400"}
        )

    return [
        Route("/openapi.json", openapi, methods=["GET"], name="openapi"),
        Route("/docs", page, methods=["GET"], name="docs"),
        Route("/docs/{name}", asset, methods=["GET"], name="docs_asset"),
    ]


def _read_asset(name: str) -> bytes:
    """Read an asset on demand, because assets are large (a megabyte) and rarely requested."""
    vendor = files("swagger_ui_bundle") / "vendor"
    release = next(folder for folder in vendor.iterdir() if folder.name.startswith("swagger-ui"))
    return (release / name).read_bytes()


def _with_headers(operation: dict[str, Any], *names: str) -> dict[str, Any]:
    operation["responses"]["200"]["headers"] = headers(names)
    return operation


_PAGE = get("A page that renders this document", {"text/html": {"schema": STRING}})
_ASSET = get(
    "An asset of the page at /docs",
    {name: {"schema": STRING} for name in ("text/javascript", "text/css")},
    errors={"404": "The page has no asset with this name"},
    parameters=[{**path_parameter("name"), "example": "swagger-ui.css"}],
)
PATHS: Paths = {
    "/openapi.json": {"get": get("This document", as_json({"type": "object"}))},
    "/docs": {"get": _with_headers(_PAGE, *PAGE_HEADERS)},
    "/docs/{name}": {"get": _with_headers(_ASSET, "cache-control")},
}
