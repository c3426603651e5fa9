"""A stop under load loses nothing: neither an accepted request, nor one that waits in the accept queue."""

import asyncio
import socket
from pathlib import Path

import pytest

from chaos.rolling_restarts import CLIENTS, THINKING_S, Load, Server, roll, servers
from support.server import free_port

# The pauses of clients leave the processor to the server that starts beside the load.
SMALL_THINKING_S = 0.4
FULL = pytest.param(50, THINKING_S, marks=pytest.mark.full)


@pytest.mark.promise("clean-stop")
@pytest.mark.parametrize(("restarts", "thinking_s"), [(1, SMALL_THINKING_S), FULL])
async def test_rolling_restarts_with_the_listening_socket_handed_over(
    restarts: int, thinking_s: float
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        tally, statuses = await roll(listener, restarts, thinking_s=thinking_s)
    assert tally.lost == []
    assert tally.refused == 0
    assert set(statuses) == {0}
    assert tally.answers >= 200 * restarts


@pytest.mark.promise("clean-stop")
@pytest.mark.parametrize(("stops", "thinking_s"), [(1, SMALL_THINKING_S), FULL])
async def test_stops_without_a_successor_reset_no_connection(stops: int, thinking_s: float) -> None:
    port = free_port()
    lost: list[str] = []
    for _ in range(stops):
        with servers() as running:
            running.append(Server(arguments=("--port", str(port))))
            await asyncio.to_thread(running[0].wait_until_ready)
            load = Load(("127.0.0.1", port), thinking_s=thinking_s)
            await load.has_answers(200)
            assert await asyncio.to_thread(running[0].stop) == 0
        lost += (await load.stop()).lost
    assert lost == []


@pytest.mark.promise("clean-stop")
@pytest.mark.full
async def test_a_unix_socket_is_handed_over_too(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(2048)
        tally, statuses = await roll(listener, 1, thinking_s=SMALL_THINKING_S)
    assert tally.lost == []
    assert statuses == [0, 0]


async def test_a_request_that_is_dropped_is_lost() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(drop, "127.0.0.1", 0) as server:
        load = Load(server.sockets[0].getsockname())
        await asyncio.sleep(0)
        while not load.tally.lost:  # noqa: ASYNC110  # asks another task
            await asyncio.sleep(0.01)
        assert (await load.stop()).answers == 0


async def test_a_load_without_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.rolling_restarts.PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as silent:
        load = Load(silent.getsockname())
        with pytest.raises(TimeoutError):
            await load.has_answers(1)
        assert len((await load.stop()).lost) >= CLIENTS
