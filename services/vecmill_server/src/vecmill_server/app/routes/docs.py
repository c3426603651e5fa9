"""The routes of the OpenAPI document, `/openapi.json`, and of the page that renders it, `/docs`."""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.own_thread import call_in_thread
from vecmill_server import __version__
from vecmill_server.app.browser_page import media_type
from vecmill_server.app.openapi.operations import Paths, as_json, get, headers, path_parameter
from vecmill_server.app.shared_page import SharedPage
from vecmill_server.base.errors import UnknownRoute
from vecmill_server.base.json_io import encode_json
from vecmill_server.base.json_schema import STRING
from vecmill_server.base.settings import ServerSettings
from vecmill_server.service.service import Service

# Allows the page to load only from this server, and no other page to show it in a frame. Swagger UI's icons
# are in its stylesheet.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_PAGE_FOLDER = "app/openapi/docs_page"
# The files that the page loads, by name: the folder of the package that has them. Swagger UI has 2 MB, so a
# file is read when it is first asked for, and then kept.
ASSETS = {
    "console.css": "app/console/assets",
    "docs.css": _PAGE_FOLDER,
    "icon.svg": "app/console/assets",
    "start.js": _PAGE_FOLDER,
    "swagger-ui-bundle.js": "app/openapi/swagger_ui",
    "swagger-ui.css": "app/openapi/swagger_ui",
}
# The page names its assets with the version of the server, so browsers do not mix two releases.
_ASSET_HEADERS = {"cache-control": "max-age=86400", "x-content-type-options": "nosniff"}
# The links of the console, which the page has if the console is there.
VIEWS = ("Try", "Compare", "Models", "Watch", "Batches")


def docs_routes(
    service: Service, describe: Callable[[ServerSettings, str | None], Mapping[str, Any]]
) -> list[Route]:
    """Return the routes of the document that `describe` returns, of the page, and of the page's assets.

    `describe` is called once, with the settings and the name of the first model.
    """
    settings = service.settings
    prefix = settings.url_prefix

    def write_document(first: str | None) -> bytes:
        return encode_json(describe(settings, first))

    async def render_document() -> bytes:  # in a thread, because it takes half a second
        first = next((model.name for model in service.catalog), None)
        return await call_in_thread("vecmill-openapi", partial(write_document, first))

    document = SharedPage(render_document, math.inf)
    read_asset = cache(_read_file)  # the files that the page loads, which are those of `ASSETS`

    async def openapi(request: Request) -> Response:
        return Response(await document.read(), media_type="application/json")

    async def page(request: Request) -> Response:
        template = Template(_read_file(_PAGE_FOLDER, "page.html").decode())
        navigation = _link_views(prefix) if settings.console else ""
        html = template.substitute(prefix=escape(prefix), navigation=navigation, version=__version__)
        return Response(html, media_type="text/html", headers=PAGE_HEADERS)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            raise UnknownRoute("The page has no asset with this name.")
        content = read_asset(ASSETS[name], name)
        return Response(content, media_type=media_type(name), headers=_ASSET_HEADERS)

    return [
        Route("/openapi.json", openapi, methods=["GET"], name="openapi"),
        Route("/docs", page, methods=["GET"], name="docs"),
        Route("/docs/{name}", asset, methods=["GET"], name="docs_asset"),
    ]


def _link_views(prefix: str) -> str:
    """Return the links of the console, as HTML."""
    links = [f'<a href="{escape(prefix)}/#/{view.lower()}">{view}</a>' for view in VIEWS]
    here = f'<a href="{escape(prefix)}/docs" aria-current="page">API</a>'
    return "\n".join(('<nav aria-label="Views">', *links, here, "</nav>\n"))


def _read_file(folder: str, name: str) -> bytes:
    return (files("vecmill_server") / folder / name).read_bytes()


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
    "/docs/{name}": {"get": _with_headers(_ASSET, *_ASSET_HEADERS)},
}
