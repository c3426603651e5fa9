"""The listening socket: bound by this process or inherited, and closed without losing a connection.

How it works. The kernel completes connections and queues them until the server accepts them. A client whose
connection is in this queue has connected, and may have sent its request. Closing the socket resets these
connections. Therefore `Acceptor.close` ends in this order:

1. No new connection begins. A filter in the kernel drops the first packet of new TCP connections. The
   client repeats this packet after a second, and then finds the next process, or nobody. The path of a Unix
   socket is removed.
2. Every connection that the kernel has completed is accepted.
3. The socket is closed.

An inherited socket belongs to other processes too: a supervisor, or the process that replaces this one. Step
1 is left out, because the socket stays open, and the other processes accept later connections.

Rules:
1. An inherited socket accepts connections when the models are loaded, not before: until then, the process
   that is being replaced answers. Without such a process, clients wait in the queue.
2. A socket of our own accepts connections at once, so that probes can tell a loading server from a dead
   one.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill.hardware.system_calls import filter_packets
from vecmill.values.environment import environment_variables
from vecmill_server.base.settings import Address, ServerSettings

BACKLOG = 2048  # connections that the kernel queues while the event loop is busy
# The time for connections that have begun to be completed: the way to the client and back, which on loopback
# is a task of the kernel alone.
HANDSHAKE_S = 0.1
LOOPBACK_HANDSHAKE_S = 0.02

FIRST_INHERITED_FD = 3  # systemd's SD_LISTEN_FDS_START

# Drops packets with the flag SYN and without ACK, in the kernel's filter language: code, jump if true, jump
# if false, operand. A packet begins with its TCP header, whose byte 13 has the flags. Accepted connections
# keep the filter, so it must not drop anything else.
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load byte 13
    (0x54, 0, 0, 0x12),  # keep SYN and ACK
    (0x15, 0, 1, 0x02),  # is it SYN alone?
    (0x06, 0, 0, 0),  # drop the packet
    (0x06, 0, 0, 0xFFFFFFFF),  # keep the packet
)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and its address.

    `others_accept` tells, when the server stops, whether other processes continue to accept connections. By
    default they do if the socket is inherited.
    """

    socket: socket.socket
    address: Address
    is_inherited: bool = False
    others_accept: Callable[[], bool] | None = None

    @property
    def stays_open(self) -> bool:
        """True if other processes accept connections after this one."""
        return self.is_inherited if self.others_accept is None else self.others_accept()


def open_listener(settings: ServerSettings) -> Listener:
    """Return the socket that `settings` or systemd's `LISTEN_FDS` name. Raises `InvalidConfig`."""
    fd = settings.fd if settings.fd is not None else passed_fd(environment_variables())
    if fd is not None:
        inherited = inherit_socket(fd)
        return Listener(inherited, _address_of(inherited), is_inherited=True)
    if settings.uds is not None:
        bound = bind_unix_socket(settings.uds, int(settings.uds_mode, 8))
        return Listener(bound, Address(path=settings.uds))
    return bind_listener(settings.host, settings.port)


def passed_fd(environment: Mapping[str, str]) -> int | None:
    """Return the file descriptor of the socket that systemd passes to this process, or `None`.

    Raises `InvalidConfig` if systemd passes several sockets.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    if environment.get("LISTEN_FDS") != "1":
        raise InvalidConfig("LISTEN_FDS must be 1: the server listens on one socket. Name one in the unit.")
    return FIRST_INHERITED_FD


def inherit_socket(fd: int) -> socket.socket:
    """Return the listening socket with this file descriptor. Raises `InvalidConfig` if there is none."""
    try:
        inherited = socket.socket(fileno=fd)
    except OSError as error:
        raise InvalidConfig(f"The file descriptor {fd} is not a socket: {error.strerror}.") from error
    is_stream = inherited.type == socket.SOCK_STREAM
    if not is_stream or not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        inherited.detach()  # the file descriptor is not ours to close
        raise InvalidConfig(f"The file descriptor {fd} is not a listening stream socket.")
    inherited.set_inheritable(False)
    return inherited


def bind_listener(host: str, port: int) -> Listener:
    """Return a listener on a TCP socket. Raises `InvalidConfig` if the address is invalid or in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfig(
            f"Cannot listen on {host}: {error.strerror}. Choose another address with --host."
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidConfig(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port or --host."
        ) from error
    return Listener(listener, Address(host, listener.getsockname()[1]))


def bind_unix_socket(path: Path, mode: int) -> socket.socket:
    """Return a listening Unix socket with these permissions; replace a socket on which nobody listens.

    Raises `InvalidConfig` if the path cannot be used.
    """
    refuse_live_socket(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(mode)  # before `listen`, so that nobody can connect with other permissions
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidConfig(
            f"Cannot listen on {path}: {error.strerror or error}. Name another path with --uds."
        ) from error
    return listener


def refuse_live_socket(path: Path) -> None:
    """Raise `InvalidConfig` if another process listens on `path`, or `path` is not a socket."""
    if not path.exists():
        return
    if not path.is_socket():
        raise InvalidConfig(f"{path} exists and is not a socket. Name another path with --uds.")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a process that has stopped may have a full queue
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # left behind by a process that has ended; it is replaced
        except OSError:
            pass  # it is there, and not ours to connect to
    raise InvalidConfig(f"Another process listens on {path}. Name another path with --uds.")


def _address_of(listening: socket.socket) -> Address:
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return Address(path=Path(os.fsdecode(name)))  # the name of an abstract socket is bytes
    return Address(name[0], name[1])


class Acceptor:
    """The accepting of connections from a listener. Use from one event loop."""

    def __init__(self, listener: Listener, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        # The server closes its socket as it ends, while the queue still has connections. Hence the copy.
        copy = self._listener.socket.dup()
        if self._listener.address.path is None:
            self._server = await loop.create_server(self._make_protocol, sock=copy, backlog=BACKLOG)
            return
        # From Python 3.13 on, the event loop would remove the path of a Unix socket when it stops accepting,
        # although other processes may accept connections to an inherited socket.
        options: dict[str, Any] = {"cleanup_socket": False}
        self._server = await loop.create_unix_server(
            self._make_protocol, sock=copy, backlog=BACKLOG, **options
        )

    async def close(self) -> None:
        """Accept every connection that the kernel has completed, and stop listening."""
        connections: list[socket.socket] = []
        if self._server is not None:
            if not self._listener.stays_open:
                await self._end_new_connections()
            self._server.close()
            connections = self._accept_rest()
        self._listener.socket.close()
        loop = asyncio.get_running_loop()
        for connection in connections:
            with suppress(OSError):  # the client has left
                await loop.connect_accepted_socket(self._make_protocol, connection)

    def _accept_rest(self) -> list[socket.socket]:
        """Return the connections in the queue.

        The event loop does not run meanwhile. Otherwise connections might arrive at an inherited socket as
        fast as they are accepted, and the stop would not end.
        """
        listening = self._listener.socket
        found: list[socket.socket] = []
        listening.setblocking(False)
        with suppress(OSError):  # the queue is empty
            while len(found) <= BACKLOG:
                connection, _ = listening.accept()
                connection.setblocking(False)
                found.append(connection)
        return found

    async def _end_new_connections(self) -> None:
        path = self._listener.address.path
        if path is not None:
            with suppress(OSError):
                path.unlink()
        elif drop_new_connections(self._listener.socket):
            is_local = self._listener.address.is_loopback
            await asyncio.sleep(LOOPBACK_HANDSHAKE_S if is_local else HANDSHAKE_S)


def drop_new_connections(listening: socket.socket) -> bool:
    """Drop the first packet of new connections to a TCP socket. Return False where the system cannot."""
    return filter_packets(listening, _DROP_SYN)
