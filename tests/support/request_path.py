"""The code that one request passes on the event loop: its functions, its files and its coroutines.

A short text is sent to a server in a thread, with the fake engine, and each call of a function of the library
and of the server on the thread of the event loop is noted, from the first byte of the request until its task
ends. Comprehensions and generator expressions count as functions, as they are calls. What else happens on the
event loop meanwhile is left out by taking the shortest of several paths.
"""

import inspect
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from support.http_server import serve_in_thread
from vecmill.batching.dispatcher import Dispatcher
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.http1.request_cycle import RequestCycle

# What a request shall pass at most.
MOST_FUNCTIONS, MOST_FILES, MOST_COROUTINES = 150, 36, 6

BODY = {"input": "a short text, as a search for something has it", "encoding_format": "base64"}
SOURCES = f"{os.sep}src{os.sep}vecmill"
REQUESTS = 20
_GET_BUFFER = HttpConnection.get_buffer.__code__
# The first call of a request.
HEAD = (_GET_BUFFER.co_filename, _GET_BUFFER.co_qualname)


@dataclass(frozen=True, slots=True)
class RequestPath:
    """What one request passed: each call, as the file and the name of the function, in order.

    `coroutines` are those that waited for each other when the request entered the queue.
    """

    calls: tuple[tuple[str, str], ...]
    coroutines: tuple[str, ...]

    @property
    def functions(self) -> list[tuple[str, str]]:
        """The functions, each once."""
        return sorted(set(self.calls))

    @property
    def files(self) -> list[str]:
        """The files of these functions."""
        return sorted({file for file, _ in self.calls})


def trace_request() -> RequestPath:
    """Send a short text to a server again and again, and return the shortest path of a request."""
    paths: list[RequestPath] = []
    calls: list[tuple[str, str]] = []
    coroutines: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "return" and code is RequestCycle.run.__code__:
            # A coroutine also returns where it waits.
            if frame.f_locals["self"].is_response_complete:
                paths.append(RequestPath(tuple(calls), tuple(coroutines)))
                calls.clear()
        elif event == "call" and SOURCES in code.co_filename:
            if code is _GET_BUFFER and HEAD not in calls:
                calls.clear()
            if code is Dispatcher.admit.__code__:
                coroutines[:] = _list_coroutines(frame)
            calls.append((code.co_filename, code.co_qualname))

    with _profiled("http-server", note), serve_in_thread() as server:
        for _ in range(REQUESTS):
            assert server.client.post("/v1/embeddings", json=BODY).status_code == 200
    return min(paths, key=lambda path: len(path.calls))


def _list_coroutines(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            yield frame.f_code.co_qualname
        frame = frame.f_back


@contextmanager
def _profiled(thread: str, note: Any) -> Iterator[None]:
    def begin(frame: FrameType, event: str, argument: Any) -> None:
        sys.setprofile(note if threading.current_thread().name == thread else None)

    threading.setprofile(begin)
    try:
        yield
    finally:
        threading.setprofile(None)
