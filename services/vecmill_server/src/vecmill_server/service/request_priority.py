"""The priority of an HTTP request: what the request says, and what its API key allows.

A request says its priority in the header `x-priority`, at the beginning of its path
(`/bulk/v1/embeddings`), or in the field `priority` of its body, in this order of precedence. A key of the
key file can have a priority: its requests have this priority, unless they say a less urgent one. Without any
of these, the size of the request decides.

Clients can choose between interactive and bulk. Background work has no time limit, and is for batches.
"""

from starlette.types import Scope

from vecmill.requests import Priority
from vecmill_server.base.errors import MalformedRequest
from vecmill_server.base.headers import header
from vecmill_server.base.settings import PRIORITIES
from vecmill_server.telemetry.request_context import RequestContext

HEADER = b"x-priority"


def choose_priority(scope: Scope, in_body: Priority | None) -> Priority | None:
    """Return the priority of a request, `None` if its size decides. Raises `MalformedRequest`."""
    context = RequestContext.of(scope)
    said = _read_header(scope) or context.path_priority or in_body
    of_key = context.key_priority
    if said is None or of_key is None:
        return said or of_key
    return Priority.BULK if Priority.BULK in (said, of_key) else Priority.INTERACTIVE


def split_path(path: str) -> tuple[Priority | None, str]:
    """Return the priority at the beginning of a path, and the rest of the path."""
    word, slash, rest = path[1:].partition("/")
    priority = PRIORITIES.get(word)
    return (priority, slash + rest) if priority is not None and slash else (None, path)


def _read_header(scope: Scope) -> Priority | None:
    value = header(scope, HEADER)
    if value is None:
        return None
    priority = PRIORITIES.get(value.decode("latin-1").lower())
    if priority is None:
        raise MalformedRequest(
            f"The header x-priority must be {' or '.join(PRIORITIES)}.", field="x-priority"
        )
    return priority
