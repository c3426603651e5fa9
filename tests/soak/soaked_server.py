"""The real server with the embedded model, which prints its own counts every second, and leaks if asked.

Run as a process: `soaked_server.py SOCKET_FD LEAK BYTES_PER_S`, where LEAK is `none`, `memory`, `fds` or
`tasks`, and BYTES_PER_S is what a leak of memory keeps in a second.
"""

import asyncio
import json
import os
import sys
import threading
import time

from vecmill.config import MillConfig
from vecmill.mill import Mill
from vecmill_server.base.settings import ServerSettings
from vecmill_server.process.listener import open_listener
from vecmill_server.process.runner import Runner
from vecmill_server.service.service import Service, create_service

SAMPLE_S = 1.0


def plant_leak(kind: str, bytes_per_s: float) -> None:
    """Make each request keep memory, or each tenth a file descriptor or a task."""
    kept: list[object] = []
    answer, count = Mill.answer, iter(range(10**9))
    kept_bytes, began = 0, time.monotonic()

    async def leaking(self: Mill, *given: object) -> object:
        nonlocal kept_bytes
        number = next(count)
        if kind == "memory":
            kept.append(os.urandom(int(bytes_per_s * (time.monotonic() - began)) - kept_bytes))
            kept_bytes += len(kept[-1])  # type: ignore[arg-type]
        elif kind == "fds" and number % 10 == 0:
            kept.append(os.open("/dev/null", os.O_RDONLY))
        elif kind == "tasks" and number % 10 == 0:
            kept.append(asyncio.create_task(asyncio.Event().wait()))
        return await answer(self, *given)  # type: ignore[arg-type]

    Mill.answer = leaking  # type: ignore[method-assign,assignment]


def print_samples(service: Service, loop: asyncio.AbstractEventLoop) -> None:
    """Print the counts of this process every second, from a thread."""

    def sample() -> None:
        counts = next(iter(service.catalog)).mill.text_counts
        print(json.dumps({"tasks": len(asyncio.all_tasks()), "open_texts": counts.open}), flush=True)

    while True:
        time.sleep(SAMPLE_S)
        loop.call_soon_threadsafe(sample)


def main(socket_fd: int, leak: str, bytes_per_s: float) -> None:
    """Serve until SIGTERM."""
    if leak != "none":
        plant_leak(leak, bytes_per_s)
    settings = ServerSettings(fd=socket_fd, access_log=False, lame_duck_s=0.0)
    service = create_service([], settings, MillConfig())

    def announce() -> None:
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        threading.Thread(target=print_samples, args=(service, loop), daemon=True).start()

    Runner(service, open_listener(settings), announce).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
