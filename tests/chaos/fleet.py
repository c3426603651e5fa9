"""Server processes that follow one another on one listening socket, and the sum of what they counted."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile

from prometheus_client.parser import text_string_to_metric_families

from chaos.faulty_server import FaultyOptions
from support.forked_process import ForkedProcess

TESTS = Path(__file__).parents[1]
BACKLOG = 2_048
START_S, STOP_S = 60.0, 60.0
TAIL_BYTES = 4_000
OUTCOMES = ("done", "failed", "expired", "cancelled")


@dataclass(frozen=True, slots=True)
class Page:
    """The counts on one page of metrics: texts by what became of them, responses by status."""

    texts: Counter[str]
    responses: Counter[int]

    @property
    def imbalance(self) -> int:
        """The admitted texts that are neither finished nor open."""
        return self.texts["admitted"] - self.texts["open"] - sum(self.texts[end] for end in OUTCOMES)


def read_page(text: str) -> Page:
    """Read a page of metrics. Raises `ValueError` if it does not count texts."""
    texts: Counter[str] = Counter()
    responses: Counter[int] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            match sample.name:
                case "vecmill_texts_admitted_total":
                    texts["admitted"] += int(sample.value)
                case "vecmill_texts_open":
                    texts["open"] += int(sample.value)
                case "vecmill_texts_finished_total":
                    texts[sample.labels["outcome"]] += int(sample.value)
                case "vecmill_http_requests_total" if sample.labels["route"] == "embeddings":
                    responses[int(sample.labels["status"])] += int(sample.value)
    if missing := {"admitted", "open", *OUTCOMES} - texts.keys():
        raise ValueError(f"the page has no counts of {', '.join(sorted(missing))} texts")
    return Page(texts, responses)


async def read_output(process: subprocess.Popen[bytes]) -> asyncio.StreamReader:
    """The lines that a process writes, of up to 16 MiB."""
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    return reader


@dataclass(slots=True)
class Fleet:
    """The processes. `options` are those of the first; each successor has the next seed.

    `deadly_calls` are the numbers of the calls that end or hang a lane: in the first process, in the second,
    and so on. `failed_start` tells why a process did not start, if one did not.

    `statuses` are the exit statuses of the processes that ended, `pages` their last pages of metrics.
    """

    options: FaultyOptions
    listener: socket.socket
    deadly_calls: Sequence[int] = ()
    replacements: int = 0
    statuses: list[int] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    failed_start: str = ""
    _current: subprocess.Popen[bytes] | None = None
    _launched: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)
    _stopped: bool = False
    _replacing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, options: FaultyOptions, deadly_calls: Sequence[int] = ()) -> "Fleet":
        """Return a fleet on a free port; the socket of `options` is replaced."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        return cls(replace(options, socket_fd=listener.fileno()), listener, deadly_calls)

    @property
    def port(self) -> int:
        """The port of all processes."""
        return int(self.listener.getsockname()[1])

    async def start(self) -> None:
        """Start the first process and wait until it is ready."""
        self._current = await self._launch()

    async def replace(self) -> None:
        """Start a successor, and stop the process that served so far when the successor is ready."""
        async with self._replacing:
            if self._stopped:
                return
            before = self._current
            self.replacements += 1
            self._current = await self._launch()
        if before is not None and before.poll() is None:
            before.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Stop all processes and wait for their last pages. Raises `AssertionError` if one has none."""
        try:
            async with self._replacing:
                self._stopped = True
            if self._current is not None and self._current.poll() is None:
                self._current.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*self._watching)
        finally:
            self.listener.close()
            for process in self._launched:
                process.kill()
                process.wait()
        assert not self.failed_start, self.failed_start
        ended, pages = len(self.statuses), len(self.pages)
        assert pages == ended == len(self._launched), f"{ended} processes ended with {pages} last pages"

    @property
    def total(self) -> Page:
        """The sum of the last pages."""
        return Page(
            sum((page.texts for page in self.pages), Counter()),
            sum((page.responses for page in self.pages), Counter()),
        )

    async def _launch(self) -> subprocess.Popen[bytes]:
        number = self.replacements
        deadly = self.deadly_calls[number] if number < len(self.deadly_calls) else None
        options = replace(self.options, seed=self.options.seed + number, deadly_call=deadly)
        with TemporaryFile() as errors:
            process = await asyncio.to_thread(
                ForkedProcess[bytes],
                [sys.executable, str(TESTS / "chaos/faulty_server.py"), options.write()],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
                pass_fds=[options.socket_fd],
            )
            self._launched.append(process)
            output = await read_output(process)
            line = b"nothing"
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    line = await output.readline()
            errors.seek(0)
            self.failed_start = f"a server printed {line!r}, and: {errors.read()[-TAIL_BYTES:]!r}"
        assert line == b"ready\n", self.failed_start
        self.failed_start = ""
        self._watching.append(asyncio.create_task(self._watch(process, output)))
        return process

    async def _watch(self, process: subprocess.Popen[bytes], output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            if line == b"degraded\n":
                await self.replace()
            else:
                self.pages.append(read_page(json.loads(line)["page"]))
        self.statuses.append(await asyncio.to_thread(process.wait))
        if process is self._current:  # it gave itself up
            await self.replace()
