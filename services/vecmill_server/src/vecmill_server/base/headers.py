"""The headers of requests and responses."""

from starlette.types import Scope

HeaderList = list[tuple[bytes, bytes]]


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of the first header with this lower-case name, stripped; `None` if it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            stripped: bytes = value.strip()
            return stripped
    return None
