"""The route by which clients of Xinference learn whether to send their API key: `/v1/cluster/auth`."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.base.json_io import encode_json
from vecmill_server.base.json_schema import Component
from vecmill_server.openapi.operations import Paths, as_json, get
from vecmill_server.service.service import Service


def xinference_routes(service: Service) -> list[Route]:
    """Return the route, which accepts GET and needs no key."""
    has_keys = service.settings.has_api_keys

    async def auth(request: Request) -> Response:
        return Response(encode_json({"auth": has_keys}), media_type="application/json")

    return [Route("/v1/cluster/auth", auth, methods=["GET"], name="cluster_auth")]


PATHS: Paths = {
    "/v1/cluster/auth": {
        "get": get(
            "Whether requests need a key, for Xinference's clients",
            as_json(Component("XinferenceAuth", {"auth": bool})),
        )
    }
}
