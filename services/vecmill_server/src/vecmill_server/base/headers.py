"""The headers of requests and responses."""

from collections.abc import Mapping

from starlette.types import Scope

HeaderList = list[tuple[bytes, bytes]]

# The index in a scope. `http1` makes it with the headers, and names the same key.
HEADER_INDEX = "vecmill.header_index"


# The value of the first header of each name. Names are in lower case, and values are stripped.
HeaderIndex = Mapping[bytes, bytes]


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of the first header with this lower-case name, stripped; `None` if it is absent."""
    return index_headers(scope).get(name)


def index_headers(scope: Scope) -> HeaderIndex:
    """Return the index of the headers of a request."""
    index: HeaderIndex | None = scope.get(HEADER_INDEX)
    if index is None:  # under the server of another project
        index = scope[HEADER_INDEX] = {name: value.strip() for name, value in reversed(scope["headers"])}
    return index
