"""The middleware that removes doubled or trailing slashes, doubled versions and the URL prefix from paths.

It removes the priority at the beginning of a path, and notes it. It gives requests of Pinecone's client a
path of their own.

It sends no redirects, because many clients do not follow a redirect of a POST.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.requests import Priority
from vecmill_server.base.errors import UnknownRoute
from vecmill_server.base.headers import header
from vecmill_server.service.request_priority import split_path
from vecmill_server.telemetry.request_context import RequestContext

_SLASHES = re.compile("/{2,}")
_DOUBLED_VERSION = re.compile("^/v1(/v[12]/)")

# Pinecone's client sends the body of other clients to the same path, and a header of its own.
_RERANK, _PINECONE_RERANK = "/rerank", "/pinecone/rerank"
_PINECONE_HEADER = b"x-pinecone-api-version"


class Paths:
    """The middleware that rewrites `scope["path"]` to the form of the route table."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            RequestContext.of(scope).path_priority, path = self._read(scope["path"])
            if path == _RERANK and header(scope, _PINECONE_HEADER) is not None:
                path = _PINECONE_RERANK
            scope["path"] = path
        await self._app(scope, receive, send)

    def _read(self, path: str) -> tuple[Priority | None, str]:
        """Return the priority at the beginning of a path, and the path in the form of the route table."""
        if "//" in path:
            path = _SLASHES.sub("/", path)
        if self._prefix:
            path = self._without_prefix(path)
        priority, path = split_path(path)
        if path.startswith("/v1/v"):  # the base URL ends in /v1, and the client appends another version
            path = _DOUBLED_VERSION.sub(r"\1", path)
        if path.endswith("/"):
            path = path.rstrip("/") or "/"
        return priority, path

    def _without_prefix(self, path: str) -> str:
        if path != self._prefix and not path.startswith(self._prefix + "/"):
            raise UnknownRoute(f"Every path of this server begins with {self._prefix}.")
        return path.removeprefix(self._prefix) or "/"
