"""The listening socket: where it comes from, who may connect, and how it stops new connections."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import uvloop

from vecmill.errors import InvalidConfig
from vecmill_server.base.settings import Address, ServerSettings
from vecmill_server.process.listener import (
    Acceptor,
    bind_listener,
    bind_unix_socket,
    drop_new_connections,
    inherit_socket,
    open_listener,
    passed_fd,
    refuse_live_socket,
)


def test_a_taken_port_is_named() -> None:
    taken = bind_listener("127.0.0.1", 0)
    with taken.socket, pytest.raises(InvalidConfig, match="--port"):
        bind_listener("127.0.0.1", taken.address.port)


def test_only_sockets_that_nobody_answers_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    refuse_live_socket(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(InvalidConfig, match="Another process"):
            refuse_live_socket(path)
    refuse_live_socket(path)
    path.unlink()
    path.write_text("a file")
    with pytest.raises(InvalidConfig, match="not a socket"):
        refuse_live_socket(path)


def test_a_hung_process_with_a_full_queue_does_not_keep_a_start_waiting(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(path))
        listener.listen(0)
        waiting.connect(str(path))
        with pytest.raises(InvalidConfig, match="Another process"):
            refuse_live_socket(path)


@pytest.mark.parametrize("mode", ["660", "600", "0666"])
def test_a_unix_socket_has_the_permissions_that_were_asked_for(tmp_path: Path, mode: str) -> None:
    settings = ServerSettings(uds=tmp_path / "socket", uds_mode=mode)
    with open_listener(settings).socket:
        assert (tmp_path / "socket").stat().st_mode & 0o7777 == int(mode, 8)


def test_by_default_only_the_owner_and_the_group_may_connect_to_a_unix_socket(tmp_path: Path) -> None:
    with open_listener(ServerSettings(uds=tmp_path / "socket")).socket:
        assert (tmp_path / "socket").stat().st_mode & 0o7777 == 0o660


def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bind_unix_socket(path, 0o600).close()
    with bind_unix_socket(path, 0o660), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_unix_socket_that_cannot_be_bound_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere/socket"):
        bind_unix_socket(tmp_path / "nowhere/socket", 0o660)


def test_an_inherited_socket_is_used_as_it_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as parent:
        listener = open_listener(ServerSettings(fd=os.dup(parent.fileno())))
        with listener.socket:
            assert listener.is_inherited
            assert listener.address == Address("127.0.0.1", parent.getsockname()[1])
    with bind_unix_socket(tmp_path / "socket", 0o660) as parent:
        listener = open_listener(ServerSettings(fd=os.dup(parent.fileno())))
        with listener.socket:
            assert listener.address == Address(path=tmp_path / "socket")


def test_only_a_listening_socket_can_be_inherited(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(InvalidConfig, match="not a socket"):
        inherit_socket(file.fileno())
    with socket.socket() as deaf, pytest.raises(InvalidConfig, match="not a listening"):
        inherit_socket(deaf.fileno())
    with pytest.raises(InvalidConfig, match="99 is not a socket"):
        inherit_socket(99)


def test_systemd_passes_one_socket_to_this_process() -> None:
    mine = str(os.getpid())
    assert passed_fd({}) is None
    assert passed_fd({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    assert passed_fd({"LISTEN_PID": mine, "LISTEN_FDS": "1"}) == 3
    with pytest.raises(InvalidConfig, match="must be 1"):
        passed_fd({"LISTEN_PID": mine, "LISTEN_FDS": "2"})


@pytest.mark.linux
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_new_connections_are_dropped_and_old_ones_go_on(host: str) -> None:
    listening = bind_listener(host, 0)
    with listening.socket:
        place = (host, listening.address.port)
        with socket.create_connection(place) as early:
            assert drop_new_connections(listening.socket)
            with pytest.raises(TimeoutError):
                socket.create_connection(place, timeout=0.05)
            accepted, _ = listening.socket.accept()
            with accepted:
                early.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
                early.close()
                assert accepted.recv(5) == b""


class NewerLoop(uvloop.Loop):  # type: ignore[misc]
    """An event loop with the default of Python 3.13."""

    async def create_unix_server(self, *arguments: Any, cleanup_socket: bool = True, **options: Any) -> Any:
        return await super().create_unix_server(*arguments, cleanup_socket=cleanup_socket, **options)


def test_the_path_of_an_inherited_socket_stays_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def serve_and_stop(fd: int) -> None:
        acceptor = Acceptor(open_listener(ServerSettings(fd=fd)), asyncio.Protocol)
        await acceptor.open()
        await acceptor.close()

    with bind_unix_socket(path, 0o660) as parent, asyncio.Runner(loop_factory=NewerLoop) as runner:
        runner.run(serve_and_stop(os.dup(parent.fileno())))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


async def test_the_end_of_an_inherited_socket_takes_what_waits_and_leaves_what_comes_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as parent:
        clients: list[socket.socket] = []

        def connect() -> None:
            clients.append(socket.create_connection(parent.getsockname()))

        def make_protocol() -> asyncio.Protocol:
            connect()  # a new client arrives for each connection that is served
            return asyncio.Protocol()

        acceptor = Acceptor(open_listener(ServerSettings(fd=os.dup(parent.fileno()))), make_protocol)
        await acceptor.open()
        for _ in range(3):
            connect()
        await acceptor.close()
        assert len(clients) == 6
        await asyncio.sleep(0)
        parent.settimeout(5)
        for _ in range(3):  # they wait for the next process
            parent.accept()[0].close()
        for client in clients:
            client.close()
