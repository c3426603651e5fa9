"""The ASGI scope of a request, and what a connection hands to the application in it.

The keys below are absent where the application runs without this protocol.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from vecmill_server.http1.request_head import RequestHead

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# A function that sets the number of seconds in which the client must send the body from now on. If they pass,
# `receive` raises `RequestTimedOut`.
BODY_TIME = "vecmill.body_time"
# `RequestCycle.watch_client`.
CLIENT_WATCH = "vecmill.client_watch"
# The time when the head of the request was complete, on the monotonic clock; only for traces.
HEAD_AT = "vecmill.head_at"
# The value of the first header of each name. `base.headers`, of which connections know nothing, has it too.
HEADER_INDEX = "vecmill.header_index"


def make_scope(head: RequestHead, state: dict[str, Any], addresses: Mapping[str, Any]) -> Scope:
    """Return the ASGI scope of a request. `addresses` are its `client` and `server`."""
    path = head.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "scheme": "http",
        "method": head.method,
        "path": unquote(path) if "%" in path else path,
        "raw_path": head.path,
        "query_string": head.query,
        "root_path": "",
        "headers": head.headers,
        "state": state,
        HEADER_INDEX: head.index,
        **addresses,
    }
