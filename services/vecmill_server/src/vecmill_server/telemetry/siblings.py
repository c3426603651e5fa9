"""The metrics of several server processes on one page, with the label `process`.

How it works. A scrape reaches any of the processes. Each process listens on a Unix socket of its own, and
writes its page to every connection. The process that was asked reads the pages of the others, and adds the
label to every sample, in a thread.

Rules:
1. The counters of processes are not added up. A counter that starts again at 0, because its process was
   replaced, would look like a reset of the sum.
2. The series of a process that does not answer within `PAGE_S` are missing from the page, and the metric
   `vecmill_processes` counts the process as missing.
3. The sockets are abstract, so no folder is needed. A process answers only its own user.
"""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from vecmill.hardware.system_calls import open_unnamed_listener, read_peer_user
from vecmill.values.own_thread import call_in_thread
from vecmill_server.telemetry.metrics.definitions import PROCESSES, ProcessState

LABEL = "process"
PAGE_S = 1.0
BACKLOG = 64

# Renders the page of this process.
Render = Callable[[], Awaitable[bytes]]

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")


class Siblings:
    """The pages of the other processes. `number` is the number of this process."""

    def __init__(self, number: int, sockets: Sequence[socket.socket]) -> None:
        """`sockets` are the listening sockets for the pages, one for each process."""
        self._number = number
        self._socket = sockets[number]
        self._names = [listening.getsockname() for listening in sockets]
        self._render: Render | None = None
        self._server: asyncio.Server | None = None

    def offer(self, render: Render) -> None:
        """Let all processes read the page of this process, which `render` returns."""
        self._render = render

    async def open(self) -> None:
        """Start to answer the other processes."""
        self._server = await asyncio.start_unix_server(self._answer, sock=self._socket.dup())

    async def merge(self) -> bytes:
        """Return the page of all processes. Raises what `render` raises for this process."""
        found = await asyncio.gather(*(self._read(number) for number in range(len(self._names))))
        pages = {number: page for number, page in enumerate(found) if page is not None}
        missing = [number for number, page in enumerate(found) if page is None]
        return await call_in_thread("vecmill-metrics", partial(merge_pages, pages, missing))

    async def _read(self, number: int) -> bytes | None:
        """Return the page of a process; `None` if it is another one, which does not answer."""
        if number == self._number and self._render is not None:
            return await self._render()
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            async with asyncio.timeout(PAGE_S):
                await asyncio.get_running_loop().sock_connect(connection, self._names[number])
                reader, writer = await asyncio.open_unix_connection(sock=connection)
                try:
                    return await reader.read() or None
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            connection.close()
            return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        try:
            if read_peer_user(peer) == os.getuid() and self._render is not None:
                writer.write(await self._render())
        finally:
            writer.close()


def open_page_sockets(count: int) -> list[socket.socket]:
    """Return listening Unix sockets with abstract names that the kernel chooses."""
    return [open_unnamed_listener(BACKLOG) for _ in range(count)]


def merge_pages(pages: Mapping[int, bytes], missing: Sequence[int] = ()) -> bytes:
    """Return one page in the format of Prometheus, with the number of its process on every sample.

    `missing` are the numbers of processes without a page.
    """
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        family, is_new = "", False
        for line in page.decode("utf-8").splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                is_new = family not in headers
                headers.setdefault(family, [])
                samples.setdefault(family, [])
            if not line.startswith("#"):
                samples[family].append(_add_label(line, number))
            elif is_new:
                headers[family].append(line)
    for number in missing:
        sample = f'{PROCESSES.name}{{state="{ProcessState.MISSING}"}} 1.0'
        samples.setdefault(PROCESSES.name, []).append(_add_label(sample, number))
        headers.setdefault(PROCESSES.name, [])
    return "".join(
        f"{line}\n" for family in headers for line in (*headers[family], *samples[family])
    ).encode()


def _add_label(sample: str, number: int) -> str:
    found = _SAMPLE.match(sample)
    assert found is not None, sample
    rest = sample[found.end() :]
    end = "," if found[2] else "}"
    return f'{found[1]}{{{LABEL}="{number}"{end}{rest}'
