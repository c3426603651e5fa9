"""The writing of lines to standard output or standard error without waiting for whoever reads them.

How it works. `write` puts a line into a bounded queue and returns. A thread takes lines from the queue, joins
those that wait, and writes them with few system calls. A pipe that nobody reads, a full disk or a stopped
terminal blocks only this thread. Lines of the access log may wait: when the queue is empty, the thread lets
them collect for `COLLECT_S`, since to wake it for each of them would take processor time from the requests.
Any other line ends this pause.

Rules:
1. A line that finds the queue full is dropped and counted. So is a line that the system refuses, for example
   because the reader has closed the pipe.
2. When lines flow again, the next line says how many were dropped.
3. `flush` waits a limited time. The thread is a daemon, so a blocked write does not keep the process alive.
   A signal handler may call it: neither of the queues has a lock that the interrupted code may hold.
4. Lines are written with `os.write`. A thread that blocks in the buffered `sys.stderr` holds its lock, and
   the interpreter aborts if it cannot take this lock at exit.
5. A system call writes whole lines, and at most `PIPE_BUF` bytes unless one line is longer. So the lines of
   several processes that write to the same pipe do not mix.
"""

import os
import queue
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

MAX_LINES = 10_000  # about 2 MB of lines of the access log
MAX_LINES_TOGETHER = 500
FLUSH_S = 1.0
COLLECT_S = 0.05

Mark = threading.Event


class LineWriter:
    """A writer of lines to the file descriptor `fd`, described in the docstring of this module.

    `report_dropped` returns the line that tells the number of dropped lines.
    """

    def __init__(
        self, fd: int, report_dropped: Callable[[int], str] | None = None, *, max_lines: int = MAX_LINES
    ) -> None:
        self._fd = fd
        self._report_dropped = report_dropped
        self._max_lines = max_lines
        self._queue: queue.SimpleQueue[str | Mark] = queue.SimpleQueue()
        self._dropped_on_entry = 0
        self._dropped_by_system = 0
        self._reported = 0
        self._is_blocked = False
        self._hurry: queue.SimpleQueue[None] = queue.SimpleQueue()  # an entry ends the pause of the thread
        threading.Thread(target=self._run, name=f"vecmill-lines-{fd}", daemon=True).start()

    @property
    def dropped(self) -> int:
        """The number of lines that were dropped so far."""
        return self._dropped_on_entry + self._dropped_by_system

    def write(self, line: str, *, may_wait: bool = False) -> None:
        """Write a line, without its end, as soon as the reader takes it. Never waits.

        A line that `may_wait` is written within `COLLECT_S`. Only one thread may call this at a time.
        """
        if self._queue.qsize() >= self._max_lines:
            self._dropped_on_entry += 1
            return
        self._queue.put(line)
        if not may_wait:
            self._end_pause()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until all lines are written, at most `timeout_s`, and return True if they are.

        Returns at once if an earlier call waited in vain and nothing was written since then.
        """
        mark = Mark()
        self._queue.put(mark)
        self._end_pause()
        is_done = mark.wait(0 if self._is_blocked else timeout_s)
        self._is_blocked = not is_done
        return is_done

    def _end_pause(self) -> None:
        if self._hurry.empty():
            self._hurry.put(None)

    def _pause(self) -> None:
        with suppress(queue.Empty):
            self._hurry.get(timeout=COLLECT_S)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            while not self._hurry.empty():  # it was about this item, or about one that waits in the queue
                self._hurry.get()
            lines: list[str] = []
            while isinstance(item, str):
                lines.append(item)
                if len(lines) >= MAX_LINES_TOGETHER or self._queue.empty():
                    break
                item = self._queue.get()
            if lines:
                self._write_lines(lines)
            if isinstance(item, Mark):
                item.set()
            elif self._queue.empty():
                self._pause()

    def _write_lines(self, lines: list[str]) -> None:
        is_written = self._write_bytes(lines)
        self._is_blocked = False
        if is_written:
            dropped = self.dropped
            if dropped > self._reported and self._report_dropped is not None:
                self._write_bytes([self._report_dropped(dropped - self._reported)])
                self._reported = dropped
        else:
            self._dropped_by_system += len(lines)

    def _write_bytes(self, lines: list[str]) -> bool:
        encoded = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines)
        return all(self._write_whole(data) for data in join_lines(encoded))

    def _write_whole(self, lines: bytes) -> bool:
        data = memoryview(lines)
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another process has made the shared pipe non-blocking
                select.select((), (self._fd,), ())
            except OSError:
                return False
        return True


def join_lines(lines: Iterable[bytes], size: int = select.PIPE_BUF) -> Iterator[bytes]:
    """Join lines to pieces of at most `size` bytes. A longer line is a piece of its own."""
    joined = b""
    for line in lines:
        if joined and len(joined) + len(line) > size:
            yield joined
            joined = b""
        joined += line
    if joined:
        yield joined
