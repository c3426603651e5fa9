"""A host on loopback that sends pictures and what hostile hosts send, and a network that leads to it."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpcore2

Send = Callable[[socket.socket], None]


def respond(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return a response, with a length unless `headers` have one."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    """Return a redirect."""
    return respond(status=status, location=location)


@dataclass(frozen=True, slots=True)
class PictureHost:
    """A server of one thread for each connection. `pages` are what it sends, or what sends, for each path."""

    port: int
    pages: dict[str, bytes | Send]
    heads: list[bytes] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The paths that were asked for."""
        return [head.split()[1].decode() for head in self.heads]


@contextmanager
def serve_pictures(
    pages: Mapping[str, bytes | Send],
    address: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[PictureHost]:
    """Serve pages until the context ends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:
        host = PictureHost(listener.getsockname()[1], dict(pages))
        threading.Thread(target=_accept, args=(listener, host, tls), daemon=True).start()
        yield host
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, host: PictureHost, tls: ssl.SSLContext | None) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, host, tls), daemon=True).start()


def _answer(connection: socket.socket, host: PictureHost, tls: ssl.SSLContext | None) -> None:
    with connection, suppress(OSError):
        if tls is None:
            _converse(connection, host)
            return
        with tls.wrap_socket(connection, server_side=True) as secured:
            _converse(secured, host)


def _converse(connection: socket.socket, host: PictureHost) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65536)
        if not received:
            host.heads.append(b"NONE (nothing)")  # it has connected all the same
            return
        head += received
    host.heads.append(head)
    page = host.pages.get(head.split()[1].decode(), respond(status="404 Not Found"))
    if callable(page):
        page(connection)
    else:
        connection.sendall(page)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def endlessly(piece: bytes, first: bytes = b"", pause_s: float = 0.0) -> Send:
    """Return what sends `first`, and then one piece after the other until the client leaves."""

    def send(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)
            time.sleep(pause_s)

    return send


@dataclass(slots=True)
class RoutedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to loopback ports instead of the addresses and ports in `routes`, and to nothing else."""

    routes: Mapping[tuple[str, int], int]
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: object = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the port on loopback that stands for an address."""
        self.asked.append((host, port))
        if (host, port) not in self.routes:
            raise httpcore2.ConnectError(host)
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.routes[host, port], timeout)


@dataclass(slots=True)
class ScriptedNames:
    """A resolver with the answers of `names`, of which the last stays."""

    names: Mapping[str, Sequence[Sequence[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the next answer for a name."""
        if host not in self.names:
            raise OSError(host)
        answers = self.names[host]
        self.asked.append(host)
        return answers[min(self.asked.count(host), len(answers)) - 1]
