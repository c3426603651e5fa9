"""The network as the fetcher of pictures sees it: public addresses alone, and so many bytes.

A name is resolved once for each connection, and the address that was checked is the one that is connected to.
Nothing resolves the name again, so an answer of DNS that changes meanwhile changes nothing.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

from vecmill.values.own_thread import call_in_thread
from vecmill_server.base.picture_urls import UnusableUrl
from vecmill_server.base.public_addresses import is_public

# Returns the addresses of a host.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# One message for all hosts that cannot be reached: it must not tell which names and ports are inside.
UNREACHABLE = "has, or leads to, a host that has no public address or does not answer"

CONNECT_S = 3.0
MOST_ADDRESSES = 4
# Of a response before its body.
HEAD_BYTES = 64 * 1024
# Small, because what is read is parsed without a pause.
READ_BYTES = 16 * 1024


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host. Raises `OSError`.

    In a thread of its own: a name that is slow holds up neither other work nor the end of the process.
    """

    def resolve() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    return await call_in_thread("vecmill-resolve", resolve)


class PublicNetwork(AsyncNetworkBackend):
    """Connects to hosts whose addresses are all public, by `inner`."""

    def __init__(self, resolve: Resolve, inner: AsyncNetworkBackend) -> None:
        self._resolve, self._inner = resolve, inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  as in httpcore2
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "BoundedStream":
        """Connect to a host. Raises `UnusableUrl`."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            raise UnusableUrl(UNREACHABLE) from None
        if not all(map(is_public, addresses)):
            raise UnusableUrl(UNREACHABLE)
        for address in addresses[:MOST_ADDRESSES]:
            try:
                return BoundedStream(await self._inner.connect_tcp(address, port, CONNECT_S))
            except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError):
                continue
        raise UnusableUrl(UNREACHABLE)


class BoundedStream(AsyncNetworkStream):
    """A connection from which only so many bytes are read: those of a head, until `allow` is called."""

    def __init__(self, inner: AsyncNetworkStream, left: int = HEAD_BYTES) -> None:
        self._inner, self._left = inner, left

    def allow(self, count: int) -> None:
        """Let so many more bytes be read."""
        self._left += count

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Read bytes. Raises `UnusableUrl` if there are too many."""
        data = await self._inner.read(min(max_bytes, READ_BYTES), timeout)
        self._left -= len(data)
        if self._left < 0:
            raise UnusableUrl("has a response that is too large")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Write bytes."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> "BoundedStream":
        """Begin TLS, with the name of the host in the URL. Raises `UnusableUrl`."""
        try:
            return BoundedStream(
                await self._inner.start_tls(ssl_context, server_hostname, CONNECT_S), self._left
            )
        except (httpcore2.NetworkError, httpcore2.TimeoutException, ssl.SSLError, OSError):
            raise UnusableUrl("has, or leads to, a host with which TLS does not work") from None

    def get_extra_info(self, info: str) -> Any:
        """Return a property of the connection."""
        return self._inner.get_extra_info(info)
