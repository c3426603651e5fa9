"""The middleware that requires an API key, except on the paths of probes and scrapers."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill_server.errors import InvalidKey
from vecmill_server.request_context import RequestContext, header

# The paths that may be read without a key. A new route requires a key unless it is listed here. Other
# methods on these paths, such as POST /, require a key.
PUBLIC_PATHS = frozenset({"/", "/health", "/livez", "/readyz", "/ping", "/metrics"})
_READ_METHODS = frozenset({"GET", "HEAD"})

# The first words are OpenAI's, by which LiteLLM tells a wrong key from an invalid request.
WRONG = "Incorrect API key provided. Ask the operator of this server for a key."
MISSING = "An API key is required: Authorization: Bearer <key>."

# The owner of keys that have no name, which are the keys of `--api-key`.
UNNAMED = ""


class Keys:
    """The middleware that requires one of `keys`, as `Bearer key`, the bare key, or `api-key: key`."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = tuple(_digest(key.encode("utf-8")) for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_public(scope["method"], scope["path"]):
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        sent = tuple(_sent_keys(scope))
        if not any(self._is_known(key) for key in sent):
            raise InvalidKey(WRONG if sent else MISSING)
        RequestContext.of(scope).owner = UNNAMED

    def _is_known(self, key: bytes) -> bool:
        # Digests have equal lengths and all are compared, so the time reveals nothing about the keys.
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def is_public(method: str, path: str) -> bool:
    """Return True if a request needs no key."""
    return path in PUBLIC_PATHS and method in _READ_METHODS


def _sent_keys(scope: Scope) -> Iterator[bytes]:
    authorization = header(scope, b"authorization")
    if authorization is not None:
        scheme, _, credentials = authorization.partition(b" ")
        yield credentials.strip() if scheme.lower() == b"bearer" and credentials else authorization
    api_key = header(scope, b"api-key")
    if api_key is not None:
        yield api_key


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
