"""Asks for an API key, on every path but the few that probes and scrapers use."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill_server.errors import InvalidKey
from vecmill_server.exchange import header

# What may be read without a key. It lists what is open, so that a new route is closed; work may be sent to
# one of these paths too (POST /), and is not open.
PUBLIC_PATHS = frozenset({"/", "/health", "/livez", "/readyz", "/ping", "/metrics"})
_READING = frozenset({"GET", "HEAD"})

# The first words are OpenAI's: LiteLLM takes other ones for a request that is wrong in itself.
WRONG = "Incorrect API key provided. Ask whoever runs this server for one."
MISSING = "An API key is required: Authorization: Bearer <key>."


class Keys:
    """Lets a request pass that carries one of `keys`: `Bearer key`, the bare key, or `api-key: key`."""

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

    def _is_known(self, key: bytes) -> bool:
        # Digests have one length, and every one of them is compared: the time tells nothing.
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def is_public(method: str, path: str) -> bool:
    """Whether a request is answered without a key."""
    return path in PUBLIC_PATHS and method in _READING


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
