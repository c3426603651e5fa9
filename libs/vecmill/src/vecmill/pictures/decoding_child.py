"""A child process that decodes pictures, as one thread of this process sees it.

The child is another program, started by the interpreter's path: nothing of this process is copied into it or
imported again, so it starts from notebooks, scripts and processes with many threads alike.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from vecmill.errors import InvalidRequest, one_line
from vecmill.pictures.decoder_frames import MOST_REASON, REQUEST, RESPONSE, Answer, write_geometry
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.values.clock import Clock
from vecmill.values.environment import environment_variables

_PROGRAM = "vecmill.pictures.decoding_process"
_SOURCES = Path(__file__).parents[2]
# All others stay here: some are secrets, and the child handles what strangers send.
_VARIABLES = (
    "DYLD_LIBRARY_PATH",
    "HOME",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPYCACHEPREFIX",
)

# glibc gives larger pieces back at once, so that the memory of one picture is there for the next.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**22)}

_START_S = 60.0
# A picture may take so many times its processor time, on a busy machine.
_WAIT_FACTOR = 5.0
_TICK_S = 0.25  # a wait that took twice as long is one in which this process stood still


class ChildEnded(Exception):
    """The child has ended, or broken off the connection."""


class ChildHangs(Exception):
    """The child has not answered in time."""


class ChildFailed(Exception):
    """The child cannot decode. The message says why."""


class DecodingChild:
    """A child process and the socket to it, for one thread. `kill` may be called from any."""

    def __init__(self, limits: PictureLimits, clock: Clock) -> None:
        """Start the child. Raises `OSError`."""
        self._limits, self._clock = limits, clock
        self._left_s = _START_S
        self._socket, other = socket.socketpair()
        try:
            self._process = _start(limits, other)
        except BaseException:
            self._socket.close()
            raise
        finally:
            other.close()
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the child can decode. Raises `ChildEnded`, `ChildHangs`, and `ChildFailed`."""
        kind, content = self._receive(0)
        if kind != Answer.READY:
            raise ChildFailed(one_line(content.decode(errors="replace")))

    def decode(self, data: bytes, geometry: PictureGeometry) -> bytes:
        """Return the pixels of a file. Raises `InvalidRequest`, `ChildEnded`, `ChildHangs`."""
        self._left_s = _WAIT_FACTOR * self._limits.max_seconds
        text = write_geometry(geometry)
        self._send(REQUEST.pack(len(text), len(data)) + text)
        self._send(data)
        height, width = geometry.size
        kind, content = self._receive(height * width * 3)
        if kind == Answer.PIXELS:
            return content
        raise InvalidRequest(one_line(content.decode(errors="replace")), field="picture")

    def kill(self) -> None:
        """Let the child end at once. Whoever waits for it gets `ChildEnded`."""
        self._process.kill()

    def end(self) -> bool:
        """Kill the child, and give back all that it has. Return whether it had all of its processor time."""
        self._process.kill()
        self._socket.close()
        return self._process.wait() == -signal.SIGPROF

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(select.POLLOUT)
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChildEnded from error

    def _receive(self, pixels: int) -> tuple[int, bytes]:
        """Return one message. A child whose message is neither `pixels` bytes nor a short text is broken."""
        kind: int
        size: int
        kind, size = RESPONSE.unpack(self._receive_bytes(RESPONSE.size))
        if size != pixels if kind == Answer.PIXELS else size > MOST_REASON:
            raise ChildEnded
        return kind, self._receive_bytes(size)

    def _receive_bytes(self, size: int) -> bytes:
        found = bytearray(size)
        rest = memoryview(found)
        while rest:
            self._wait(select.POLLIN)
            try:
                received = self._socket.recv_into(rest)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChildEnded from error
            if not received:
                raise ChildEnded
            rest = rest[received:]
        return bytes(found)

    def _wait(self, event: int) -> None:
        """Wait for the socket. The time in which this process itself stood still does not count."""
        poll = select.poll()
        poll.register(self._socket, event)
        is_ready = False
        while not is_ready:
            if self._left_s <= 0:
                raise ChildHangs
            began = self._clock()
            is_ready = bool(poll.poll(1000 * min(_TICK_S, self._left_s)))
            self._left_s -= min(self._clock() - began, 2 * _TICK_S)


def _start(limits: PictureLimits, connection: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        _command(limits),
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    )


def _command(limits: PictureLimits) -> list[str]:
    values = (limits.max_bytes, limits.max_pixels, limits.max_side, limits.max_seconds)
    if not sys.executable:
        raise FileNotFoundError("Python does not know the path of its own program.")
    # Without -P, a file in the current folder that is named like a module would be imported.
    return [sys.executable, "-P", "-m", _PROGRAM, str(os.getpid()), *map(str, values)]


def _environment() -> dict[str, str]:
    """Return the variables of the child. It finds the modules that this process finds."""
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    if str(_SOURCES) not in folders:
        folders.append(str(_SOURCES))
    variables = environment_variables()
    kept = {name: variables[name] for name in _VARIABLES if name in variables}
    return {**kept, **_MEMORY, "PYTHONPATH": os.pathsep.join(folders)}
