"""The paths that probes, scrapers and browsers may read without an API key."""

from vecmill_server.base.settings import ServerSettings

# The paths that may be read without a key. A new route requires a key unless it is listed here. Other
# methods on these paths, such as POST /, require a key. With `--metrics-key`, METRICS_PATH requires it.
PUBLIC_PATHS = frozenset(
    {
        *("/", "/health", "/v1/health", "/livez", "/readyz", "/ping"),
        *("/metrics", "/docs", "/openapi.json", "/console/state.json", "/v1/cluster/auth"),
    }
)
# The prefixes of the assets of the pages at /docs and at /.
PUBLIC_PREFIXES = ("/docs/", "/console/assets/")
METRICS_PATH = "/metrics"
_READ_METHODS = frozenset({"GET", "HEAD"})


def is_public(method: str, path: str) -> bool:
    """Return True if a request needs no API key."""
    return method in _READ_METHODS and (path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES))


def requires_key(settings: ServerSettings, method: str, path: str) -> bool:
    """Return True if a server with these settings requires a key for the request."""
    if is_public(method, path):
        return path == METRICS_PATH and bool(settings.metrics_key)
    return settings.has_api_keys
