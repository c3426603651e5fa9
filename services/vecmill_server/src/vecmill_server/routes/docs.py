"""The routes of the OpenAPI document, `/openapi.json`, and of the page that renders it, `/docs`."""

from collections.abc import Callable, Mapping
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

# Allows the page to load only from this server.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'"
)

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>vecmill</title>
<link rel="stylesheet" href="{prefix}/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="{prefix}/docs/swagger-ui-bundle.js"></script>
<script src="{prefix}/docs/start.js"></script>
</body>
</html>
"""

START = 'SwaggerUIBundle({{url: "{prefix}/openapi.json", dom_id: "#api", validatorUrl: null}});\n'


def docs_routes(service: Service, describe: Callable[[ServerSettings], Mapping[str, Any]]) -> list[Route]:
    """Return the routes of the document that `describe` returns, of the page, and of the page's assets."""
    prefix = service.settings.url_prefix

    async def openapi(request: Request) -> Response:
        return Response(encode_json(describe(service.settings)), media_type="application/json")

    async def page(request: Request) -> Response:
        policy = {"content-security-policy": PAGE_POLICY}
        return Response(PAGE.format(prefix=prefix), media_type="text/html", headers=policy)

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


def _with_header(operation: dict[str, Any], name: str) -> dict[str, Any]:
    operation["responses"]["200"]["headers"] = headers((name,))
    return operation


_PAGE = get("A page that renders this document", {"text/html": {"schema": STRING}})
_ASSET = get(
    "An asset of the page at /docs",
    {name: {"schema": STRING} for name in ("text/javascript", "text/css")},
    errors={"404": "The page has no asset with this name"},
    parameters=[path_parameter("name")],
)
PATHS: Paths = {
    "/openapi.json": {"get": get("This document", as_json({"type": "object"}))},
    "/docs": {"get": _with_header(_PAGE, "content-security-policy")},
    "/docs/{name}": {"get": _with_header(_ASSET, "cache-control")},
}
