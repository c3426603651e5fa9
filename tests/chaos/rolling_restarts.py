"""Rolling restarts under load: each process is replaced by a new one that inherits its listening socket."""

import asyncio
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.forked_process import ForkedProcess

COMMAND = (sys.executable, "-m", "vecmill", "serve", "--engine", "fake")
CLIENTS = 64
KEEP_ALIVE_SHARE = 0.5  # of requests whose connection is used again
THINKING_S = 0.05  # the longest pause of a client between two requests
PATIENCE_S = 30.0
REFUSED_PAUSE_S = 0.02


@dataclass(slots=True)
class Tally:
    """The answers to a load. `lost` has a sentence for each request without a good answer."""

    answers: int = 0
    refused: int = 0  # connections that were not accepted, so nothing was lost
    lost: list[str] = field(default_factory=list)


class Load:
    """Clients that send requests, on new and on kept connections, until they are stopped."""

    def __init__(self, address: tuple[str, int] | str, *, thinking_s: float = THINKING_S) -> None:
        """`address` is a host and port, or the path of a Unix socket."""
        self.tally = Tally()
        self._thinking_s = thinking_s
        self._address = address
        self._is_stopped = False
        self._answered = asyncio.Event()
        self._clients = [asyncio.create_task(self._send(random.Random(n), n)) for n in range(CLIENTS)]

    async def stop(self) -> Tally:
        """Let every client finish its request, and return the tally."""
        self._is_stopped = True
        await asyncio.gather(*self._clients)
        return self.tally

    async def has_answers(self, more: int) -> None:
        """Return after this number of further answers. Raises `TimeoutError` if there are no more answers."""
        wanted = self.tally.answers + more
        while self.tally.answers < wanted:
            self._answered.clear()
            # A client that gets no answer gives up within the same time.
            async with asyncio.timeout(2 * PATIENCE_S):
                await self._answered.wait()

    async def _send(self, dice: random.Random, client: int) -> None:
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        number = 0
        while not self._is_stopped:
            if streams is not None and streams[0].at_eof():  # closed while it was idle: nothing is lost
                streams = self._close(streams[1])
            if streams is None:
                try:
                    streams = await self._connect()
                except (ConnectionRefusedError, FileNotFoundError):
                    self.tally.refused += 1
                    await asyncio.sleep(REFUSED_PAUSE_S)
                    continue
            number += 1
            keep = dice.random() < KEEP_ALIVE_SHARE
            try:
                async with asyncio.timeout(PATIENCE_S):
                    is_open = await exchange(*streams, f"text {client} {number}", keep=keep)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                self.tally.lost.append(f"client {client}, request {number}: {error!r}")
                is_open = False
            else:
                self.tally.answers += 1
                self._answered.set()
            if not is_open:
                streams = self._close(streams[1])
            await asyncio.sleep(dice.random() * self._thinking_s)
        if streams is not None:
            self._close(streams[1])

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._address, str):
            return await asyncio.open_unix_connection(self._address)
        return await asyncio.open_connection(*self._address)

    @staticmethod
    def _close(writer: asyncio.StreamWriter) -> None:
        writer.close()


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, *, keep: bool
) -> bool:
    """Embed `text`, and return True if the connection stays open.

    Raises `ValueError` unless the status is 200, and the errors of `asyncio` if the answer is not whole.
    """
    body = b'{"input": "%s"}' % text.encode()
    wish = b"" if keep else b"connection: close\r\n"
    writer.write(
        b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n%scontent-length: %d\r\n\r\n%s" % (wish, len(body), body)
    )
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    if not head.startswith(b"http/1.1 200 "):
        raise ValueError(head.partition(b"\r\n")[0])
    return b"connection: close" not in head


class Server:
    """A server process, which may inherit its listening socket."""

    def __init__(self, listener: socket.socket | None = None, arguments: Sequence[str] = ()) -> None:
        fds = () if listener is None else (listener.fileno(),)
        options = [option for fd in fds for option in ("--fd", str(fd))]
        self.process = ForkedProcess[bytes](
            [*COMMAND, "--no-access-log", *options, *arguments], stdout=subprocess.PIPE, pass_fds=fds
        )

    def wait_until_ready(self) -> None:
        """Return when the server has printed that it serves. Raises `EOFError` if it has ended."""
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise EOFError("the server ended")

    def stop(self) -> int:
        """Send SIGTERM, and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End the process at once if it runs."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def servers() -> Iterator[list[Server]]:
    """A list of servers, which are ended at the end."""
    found: list[Server] = []
    try:
        yield found
    finally:
        for server in found:
            server.close()


async def roll(
    listener: socket.socket,
    restarts: int,
    *,
    thinking_s: float = THINKING_S,
) -> tuple[Tally, list[int]]:
    """Replace the server `restarts` times under load; return the tally and the exit statuses."""
    statuses = []
    with servers() as running:
        load = Load(listener.getsockname(), thinking_s=thinking_s)  # which waits in the accept queue
        running.append(Server(listener))
        await load.has_answers(100)
        await asyncio.to_thread(running[-1].wait_until_ready)
        for _ in range(restarts):
            running.append(Server(listener))
            await asyncio.to_thread(running[-1].wait_until_ready)
            await load.has_answers(100)
            statuses.append(await asyncio.to_thread(running[-2].stop))
            await load.has_answers(100)
        tally = await load.stop()
        statuses.append(await asyncio.to_thread(running[-1].stop))
    return tally, statuses
