"""The message to the operator when the server is ready: its models, its address and an example request.

The last lines are the addresses of the pages for browsers, unless the server listens on a Unix socket.
"""

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from vecmill.values.task import Task
from vecmill_server.base.address import Address
from vecmill_server.service.service import Service

# The path and body of an example request, by the task of a model.
EXAMPLES: Mapping[Task, tuple[str, str]] = MappingProxyType(
    {
        Task.EMBED: ("/v1/embeddings", '{"input": "hello"}'),
        Task.RERANK: ("/rerank", '{"query": "hello", "documents": ["hi", "goodbye"]}'),
        Task.CLASSIFY: ("/predict", '{"inputs": "hello"}'),
        Task.CLASSIFY_TOKENS: ("/predict", '{"inputs": "hello"}'),
        Task.SPARSE: ("/embed_sparse", '{"inputs": "hello"}'),
        Task.MULTI_VECTOR: ("/embed_all", '{"inputs": "hello"}'),
    }
)


def ready_message(service: Service, address: Address) -> str:
    """Return the models, the address of the server, an example request for the shell, and its pages."""
    served = [model for model in service.catalog if model.failure is None]
    names = ", ".join(model.name for model in served)
    base, options = _base_url(service.settings.url_prefix, address)
    if service.settings.has_api_keys:
        options += ["-H", "authorization: Bearer YOUR_KEY"]
    path, body = EXAMPLES[served[0].task or Task.EMBED]
    command = ["curl", *options, f"{base}{path}", "-d", body]
    # As systemd writes the names of abstract sockets.
    shown = str(address.path).replace("\0", "@")
    place = base if address.path is None else f"the socket {shown}"
    lines = [f"vecmill serves {names} on {place}", shlex.join(command)]
    if address.path is None:  # a browser cannot connect to a socket
        if service.settings.console:
            lines.append(f"To try it in a browser: {base}/")
        lines.append(f"The API, with examples to send: {base}/docs")
    return "\n".join(lines)


def _base_url(prefix: str, address: Address) -> tuple[str, list[str]]:
    if address.path is not None:
        option = "--abstract-unix-socket" if address.is_abstract else "--unix-socket"
        return f"http://localhost{prefix}", [option, str(address.path).removeprefix("\0")]
    # A client cannot connect to a wildcard address, so the example uses the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{address.port}{prefix}", []
