"""The state of one HTTP request that middleware and routes share."""

from dataclasses import dataclass, field

from starlette.types import Scope

from vecmill.requests import Priority
from vecmill_server.base.headers import HeaderList
from vecmill_server.telemetry.tracing.trace import RequestTrace

_KEY = "vecmill.request_context"


@dataclass(slots=True)
class RequestContext:
    """The state of one request, created by `middleware.request_contexts` and filled in by the route.

    `started_at` is on the monotonic clock. `status` is 0 until the response begins. `reason` is the label of
    the error in the response, or `None`. `texts` and `tokens` are counts for the log. `owner` is the name of
    the API key, which is empty for keys without a name; `None` if the request needs no key. `client` tells
    holders of keys apart, for fair sharing. `path_priority` and `key_priority` are the priorities in the path
    and of the API key (`request_priority`). `headers` are for the response, whatever its status. `trace_id`
    is for the log, `None` unless tracing is on. `trace` is `None` unless the trace is sampled.
    """

    request_id: str
    started_at: float
    status: int = 0
    reason: str | None = None
    texts: int = 0
    tokens: int = 0
    owner: str | None = None
    client: str | None = None
    path_priority: Priority | None = None
    key_priority: Priority | None = None
    headers: HeaderList = field(default_factory=list)
    trace_id: str | None = None
    trace: RequestTrace | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids of the request for its log lines."""
        ids = {"request_id": self.request_id}
        return ids if self.trace_id is None else {**ids, "trace_id": self.trace_id}

    @classmethod
    def of(cls, scope: Scope) -> "RequestContext":
        """Return the context of the request with this scope."""
        context: RequestContext = scope[_KEY]
        return context

    def attach(self, scope: Scope) -> None:
        """Store this context in `scope`, the scope of its request."""
        scope[_KEY] = self


def client_of(scope: Scope) -> str | None:
    """Return the name of the client for fair sharing: of its key, otherwise its address, if there is one."""
    client = RequestContext.of(scope).client
    if client is not None:
        return client
    address = scope.get("client")
    return None if address is None else str(address[0])
