"""The answers to the preflight requests of browsers, and the headers that let pages read responses."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from vecmill_server.base.web_origins import WebOrigins

_PRIVATE_NETWORK = "access-control-allow-private-network"


class CorsLayer(CORSMiddleware):
    """Starlette's middleware for `origins`, whose pages may call private and loopback addresses too.

    `exposed` are the headers that pages may read.
    """

    def __init__(self, app: ASGIApp, origins: WebOrigins, exposed: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=tuple(origins.exact),
            allow_origin_regex=None if origins.pattern is None else origins.pattern.pattern,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=exposed,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight. Only a page that may call learns that the network is no obstacle."""
        response = super().preflight_response(request_headers)
        if response.status_code != 200 and _PRIVATE_NETWORK in response.headers:
            del response.headers[_PRIVATE_NETWORK]
        return response
