"""`/openapi.json`, and `/docs`, a page that renders it without any other host."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.documents import encode_json
from vecmill_server.errors import UnknownRoute
from vecmill_server.openapi.document import describe_api
from vecmill_server.service import Service

# The page may load what this server gives, and nothing else.
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


def docs_routes(service: Service) -> list[Route]:
    """The description, the page, and the page's parts."""
    prefix = service.settings.url_prefix

    async def openapi(request: Request) -> Response:
        return Response(encode_json(describe_api(service.settings)), media_type="application/json")

    async def page(request: Request) -> Response:
        headers = {"content-security-policy": PAGE_POLICY}
        return Response(PAGE.format(prefix=prefix), media_type="text/html", headers=headers)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "start.js":
            return Response(START.format(prefix=prefix), media_type="text/javascript")
        if name not in ASSETS:
            raise UnknownRoute("The page has no such part.")
        return Response(
            _read_asset(name), media_type=ASSETS[name], headers={"cache-control": "max-age=86400"}
        )

    return [
        Route("/openapi.json", openapi, methods=["GET"], name="openapi"),
        Route("/docs", page, methods=["GET"], name="docs"),
        Route("/docs/{name}", asset, methods=["GET"], name="docs_asset"),
    ]


def _read_asset(name: str) -> bytes:
    """Read on demand: next to nobody asks, and a megabyte is too much to keep for that."""
    vendor = files("swagger_ui_bundle") / "vendor"
    release = next(folder for folder in vendor.iterdir() if folder.name.startswith("swagger-ui"))
    return (release / name).read_bytes()
