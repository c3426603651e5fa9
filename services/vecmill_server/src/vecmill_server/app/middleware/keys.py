"""The middleware that requires an API key, except on the paths of probes, scrapers and the API's page."""

from collections.abc import Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill_server.base.errors import InvalidKey
from vecmill_server.base.headers import header
from vecmill_server.service.api_keys import ApiKeys, KeyHolder
from vecmill_server.service.public_paths import METRICS_PATH, is_public
from vecmill_server.telemetry.request_context import RequestContext

# The first words are OpenAI's, by which LiteLLM tells a wrong key from an invalid request.
WRONG = "Incorrect API key provided. Ask the operator of this server for a key."
MISSING = "An API key is required: Authorization: Bearer <key>."
MISSING_FOR_METRICS = "The key of --metrics-key is required: Authorization: Bearer <key>."


class Keys:
    """The middleware that requires one of `keys`, as `Bearer key`, the bare key, or `api-key: key`.

    `metrics_keys` are the only keys that open the metrics. Without `keys`, all other paths are open. Without
    `metrics_keys`, the metrics are.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys | None, metrics_keys: ApiKeys | None = None) -> None:
        self._app = app
        self._keys = keys
        self._metrics_keys = metrics_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            keys = self._keys_for(scope["method"], scope["path"])
            if keys is not None:
                keys.watch()
                missing = MISSING_FOR_METRICS if keys is self._metrics_keys else MISSING
                holder = _find_holder(keys, scope, missing)
                context = RequestContext.of(scope)
                context.owner, context.client = holder.owner, holder.client
                context.key_priority = holder.priority
        await self._app(scope, receive, send)

    def _keys_for(self, method: str, path: str) -> ApiKeys | None:
        if is_public(method, path):
            return self._metrics_keys if path == METRICS_PATH else None
        return self._keys


def _find_holder(keys: ApiKeys, scope: Scope, missing: str) -> KeyHolder:
    sent = tuple(_sent_keys(scope))
    holder = keys.find_holder(sent)
    if holder is None:
        raise InvalidKey(WRONG if sent else missing)
    return holder


def _sent_keys(scope: Scope) -> Iterator[bytes]:
    authorization = header(scope, b"authorization")
    if authorization is not None:
        scheme, _, credentials = authorization.partition(b" ")
        yield credentials.strip() if scheme.lower() == b"bearer" and credentials else authorization
    api_key = header(scope, b"api-key")
    if api_key is not None:
        yield api_key
