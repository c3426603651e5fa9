"""The longest gap between answers of `/livez`: of a server under test, and of an idle process beside it.

The idle process is a control. On a busy machine every process waits for a processor at times; a gap that the
control has too is not the server's. The probes are processes of their own: in the process of the test, which
makes and sends the hostile input, both would wait for that process, and the gaps of the server would hide.
"""

import asyncio
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen

EVERY_S = 0.002
PATIENCE_S = 120.0

REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
BEGUN = "begun\n"


@dataclass(slots=True)
class LivezGap:
    """The longest gaps in seconds, known after the context. 0 before."""

    server_s: float = 0.0
    control_s: float = 0.0

    @property
    def beyond_control_s(self) -> float:
        """How much longer the server was silent than the control."""
        return self.server_s - self.control_s


@contextmanager
def livez_gap(port: int) -> Iterator[LivezGap]:
    """Measure the longest gaps of the server at `port`, and of a control process, until the block ends.

    Raises `ConnectionError` if a probe got no answer, or another one than 200.
    """
    found = LivezGap()
    with ExitStack() as stack:
        _, control_port = stack.enter_context(idle_process())
        probes = [stack.enter_context(_running("probe", str(each))) for each in (port, control_port)]
        for probe in probes:
            assert probe.stdout is not None
            if probe.stdout.readline() != BEGUN:
                raise ConnectionError("`/livez` was not answered")
        yield found
        found.server_s, found.control_s = map(_end, probes)


@contextmanager
def idle_process() -> Iterator[tuple[Popen[str], int]]:
    """A process that does nothing but answer, and its port."""
    with _running("serve") as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@contextmanager
def _running(*arguments: str) -> Iterator[Popen[str]]:
    command = [sys.executable, __file__, *arguments]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _end(probe: Popen[str]) -> float:
    """Stop a probe after the answer that is under way, and return the longest gap."""
    told, _ = probe.communicate(timeout=PATIENCE_S + 10.0)
    if not told:
        raise ConnectionError("`/livez` was not answered")
    return float(told)


def probe_port(port: int) -> float:
    """Ask again and again until standard input ends; return the longest time between two answers."""
    longest_s = 0.0
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        last_at = _ask(connection)
        print(BEGUN, end="", flush=True)
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            now = _ask(connection)
            longest_s = max(longest_s, now - last_at)
            last_at = now
    return longest_s


def _ask(connection: socket.socket) -> float:
    """Return the time of the answer."""
    connection.sendall(REQUEST)
    if not connection.recv(65_536).startswith(b"HTTP/1.1 200 "):
        raise ConnectionError("`/livez` failed")
    return time.perf_counter()


class _Idle(asyncio.Protocol):
    """Answers whatever arrives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def serve_control() -> None:
    """Serve on a free port, which is printed, until the process is killed."""
    server = await asyncio.get_running_loop().create_server(_Idle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve_control())
    else:
        print(probe_port(int(sys.argv[2])))
