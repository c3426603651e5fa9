"""The longest gap between answers of `/livez`: of a server under test, and of an idle process beside it.

The idle process is a control. On a busy machine every process waits for a processor at times; a gap that the
control has too is not the server's.
"""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen

EVERY_S = 0.002
PATIENCE_S = 120.0

REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@dataclass(slots=True)
class LivezGap:
    """The longest gaps in seconds, known after the context. 0 before."""

    server_s: float = 0.0
    control_s: float = 0.0

    @property
    def beyond_control_s(self) -> float:
        """How much longer the server was silent than the control."""
        return self.server_s - self.control_s


class _Probe(threading.Thread):
    """Asks one port again and again, and keeps the longest time from one answer to the next."""

    def __init__(self, port: int) -> None:
        super().__init__(name=f"livez-{port}")
        self.longest_s = 0.0
        self.failure: OSError | None = None
        self.has_begun = threading.Event()
        self._port = port
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S) as connection:
                self._measure(connection)
        except OSError as error:
            self.failure = error
        finally:
            self.has_begun.set()

    def _measure(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        last = None
        while not self._ended.wait(EVERY_S) or last is None:
            connection.sendall(REQUEST)
            if not connection.recv(65_536).startswith(b"HTTP/1.1 200 "):
                raise ConnectionError(f"/livez of port {self._port} failed")
            now = time.perf_counter()
            if last is not None:
                self.longest_s = max(self.longest_s, now - last)
            last = now
            self.has_begun.set()

    def end(self) -> None:
        """Stop, after an answer that is under way."""
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise self.failure


@contextmanager
def livez_gap(port: int) -> Iterator[LivezGap]:
    """Measure the longest gaps of the server at `port`, and of a control process, until the block ends."""
    found = LivezGap()
    with Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True) as control:
        assert control.stdout is not None
        probes = _Probe(port), _Probe(int(control.stdout.readline()))
        try:
            for probe in probes:
                probe.start()
            for probe in probes:
                probe.has_begun.wait(PATIENCE_S)
            yield found
        finally:
            try:
                for probe in probes:
                    probe.end()
            finally:
                control.kill()
    found.server_s, found.control_s = (probe.longest_s for probe in probes)


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
    asyncio.run(serve_control())
