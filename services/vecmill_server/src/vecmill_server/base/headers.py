"""The headers of requests and responses."""

from collections.abc import Mapping

from starlette.types import Scope

HeaderList = list[tuple[bytes, bytes]]

# The index in a scope. `http1` makes it with the headers, and names the same key.
HEADER_INDEX = "vecmill.header_index"


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of the first header with this lower-case name, stripped; `None` if it is absent."""
    value = index_headers(scope).get(name)
    return None if value is None else value.strip()


def index_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the value of the first header of each name, in lower case. The values are not stripped."""
    index: Mapping[bytes, bytes] | None = scope.get(HEADER_INDEX)
    if index is None:  # under the server of another project
        index = scope[HEADER_INDEX] = dict(reversed(list(scope["headers"])))
    return index
