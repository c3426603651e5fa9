"""What a request says beside its body: in its path, and in headers of the server's own.

The path of a request gets the form of the route table: without doubled or trailing slashes, doubled versions
and the URL prefix, and without a priority at its beginning. The server sends no redirects, because many
clients do not follow a redirect of a POST. Requests of Pinecone's client get a path of their own.

A request says its priority in the header `x-priority`, at the beginning of its path
(`/bulk/v1/embeddings`), or in the field `priority` of its body, in this order of precedence. A key of the
key file can have a priority: its requests have this priority, unless they say a less urgent one. Without any
of these, the size of the request decides. Clients can choose between interactive and bulk. Background work
has no time limit, and is for batches.
"""

import re

from starlette.types import Scope

from vecmill.requests import Priority
from vecmill_server.app.request_record import RequestContext
from vecmill_server.base.errors import MalformedRequest, UnknownRoute
from vecmill_server.base.headers import HeaderIndex, header
from vecmill_server.base.settings import PRIORITIES
from vecmill_server.dialects.pinecone import PINECONE_HEADER
from vecmill_server.dialects.pinecone import PREFIX as PINECONE_PREFIX
from vecmill_server.dialects.space_headers import EXPECTED_SPACE, SPACE_PATTERN

PRIORITY_HEADER = b"x-priority"
TIMEOUT_HEADER = b"x-request-timeout-ms"
SPACE_HEADER = EXPECTED_SPACE.encode()

# The request ids of clients that are copied to logs and headers.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

_SPACE = re.compile(SPACE_PATTERN.encode())

_SLASHES = re.compile("/{2,}")
_DOUBLED_VERSION = re.compile("^/v[12](/v[12]/)")

# The paths that Pinecone's client shares with other clients, to which it sends a header of its own.
_OF_PINECONE = re.compile("/(?:embed|rerank|models(?:/.*)?)")


def read_request_id(value: bytes) -> str | None:
    """Return the id in the header `x-request-id`, `None` if it cannot be copied."""
    return value.decode("ascii") if _REQUEST_ID.fullmatch(value) else None


def read_path(scope: Scope, prefix: str) -> tuple[Priority | None, str]:
    """Return the priority at the beginning of a path, and the path in the form of the route table.

    `prefix` is the URL prefix of the server. Raises `UnknownRoute` for paths without it.
    """
    path: str = scope["path"]
    if "//" in path:
        path = _SLASHES.sub("/", path)
    if prefix:
        if path != prefix and not path.startswith(prefix + "/"):
            raise UnknownRoute(f"Every path of this server begins with {prefix}.")
        path = path.removeprefix(prefix) or "/"
    word, slash, rest = path[1:].partition("/")
    priority = PRIORITIES.get(word) if slash else None
    if priority is not None:
        path = slash + rest
    if path.startswith(
        ("/v1/v", "/v2/v")
    ):  # the base URL ends in a version, and the client appends another version
        path = _DOUBLED_VERSION.sub(r"\1", path)
    if path.endswith("/"):
        path = path.rstrip("/") or "/"
    if header(scope, PINECONE_HEADER) is not None and _OF_PINECONE.fullmatch(path):
        path = PINECONE_PREFIX + path
    return priority, path


def is_final(path: str) -> bool:
    """Return whether `read_path` leaves a path as it is, whatever the headers say."""
    return not _OF_PINECONE.fullmatch(path) and read_path({"path": path, "headers": []}, "") == (None, path)


def choose_priority(sent: HeaderIndex, context: RequestContext, in_body: Priority | None) -> Priority | None:
    """Return the priority of a request, `None` if its size decides. Raises `MalformedRequest`."""
    value = sent.get(PRIORITY_HEADER)
    in_header = None if value is None else PRIORITIES.get(value.decode("latin-1").lower())
    if value is not None and in_header is None:
        raise MalformedRequest(
            f"The header x-priority must be {' or '.join(PRIORITIES)}.", field="x-priority"
        )
    said = in_header or context.path_priority or in_body
    of_key = context.key_priority
    if said is None or of_key is None:
        return said or of_key
    return Priority.BULK if Priority.BULK in (said, of_key) else Priority.INTERACTIVE


def requested_timeout_s(sent: HeaderIndex) -> float | None:
    """Return the time limit in `x-request-timeout-ms`, in seconds. Raises `MalformedRequest`."""
    value = sent.get(TIMEOUT_HEADER)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 9 or int(value) == 0:
        raise MalformedRequest(
            "The header x-request-timeout-ms must be a whole number of milliseconds, at least 1.",
            field="x-request-timeout-ms",
        )
    return int(value) / 1000


def expected_space(sent: HeaderIndex) -> str | None:
    """Return the space that the client expects of its vectors. Raises `MalformedRequest`."""
    value = sent.get(SPACE_HEADER)
    if value is None:
        return None
    if _SPACE.fullmatch(value) is None:
        raise MalformedRequest(
            f"The header {EXPECTED_SPACE} must be a value of x-space or x-space-exact, such as "
            "s1-0123456789abcdef0123456789abcdef.",
            field=EXPECTED_SPACE,
        )
    return value.decode("ascii")
