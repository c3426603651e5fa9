"""A stop waits for the next request of a connection as long as the pauses of clients let it expect one."""

import asyncio
import socket

import pytest

from support.memory_transport import Application, ManualTime, give, make_share, open_connection
from vecmill_server.http1.connection_limits import ConnectionShare
from vecmill_server.http1.pauses import LEAST_PATIENCE_S, MOST_PATIENCE_S, PAUSE_FACTOR, Pauses
from vecmill_server.http1.protocol import HttpConnection

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("noted", "patience_s"),
    [
        ([], LEAST_PATIENCE_S),
        ([0.001, 0.1], LEAST_PATIENCE_S),
        ([0.1, 0.3, 0.2], PAUSE_FACTOR * 0.3),
        ([0.3, 5.0], PAUSE_FACTOR * 0.3),  # a stop waits for no client that pauses for 5 s
        ([0.9], MOST_PATIENCE_S),
        ([MOST_PATIENCE_S], MOST_PATIENCE_S),
    ],
)
def test_the_longest_pause_within_a_second_counts(noted: list[float], patience_s: float) -> None:
    pauses = Pauses()
    for seconds in noted:
        pauses.note(seconds)
    assert pauses.patience_s == pytest.approx(patience_s)


async def ask(connection: HttpConnection) -> None:
    """Send a request, and let it be answered."""
    give(connection, GET)
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.promise("clean-stop")
async def test_a_connection_has_rested_when_no_client_has_ever_paused_so_long() -> None:
    share: ConnectionShare = make_share()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = ManualTime()
        silent, asking = (open_connection(Application(), share, kernel=ours, loop=loop)[0] for _ in range(2))

        def rested() -> tuple[bool, bool]:
            return silent.has_rested, asking.has_rested

        loop.now += 0.3  # the first request of a connection shows a pause too
        await ask(asking)
        assert rested() == (False, False)  # the client of the silent one may be as slow
        loop.now += 0.29
        assert rested() == (False, False)
        loop.now += 0.02
        assert rested() == (True, False)  # the other counts from its last response
        loop.now += 0.3
        assert rested() == (True, True)
        theirs.sendall(GET[:1])  # a request that waits in the kernel
        assert rested() == (False, False)
