"""The client that takes the responses of one connection: the time that it has, and whether it is still there.

Rule: in each `write_timeout_s`, the client must take at least `MIN_TAKEN_BYTES` of the response, or all the
rest. Otherwise the connection is aborted. Bytes in the buffers of the kernel count as taken. While the server
stops, the time is `STOPPING_WRITE_S`.

The FIN of a client does not tell whether the client still reads: `shutdown(SHUT_WR)` and `close()` look the
same until the server writes. A client that is gone answers what the server writes with a reset. Therefore the
server writes `100 Continue`, an interim response that every HTTP/1.1 client must accept (RFC 9110, section
15.2), if the response takes longer than `PROBE_AFTER_S`. A reset cancels the request, so its texts are not
computed.
"""

import asyncio
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

from vecmill_server.http1.time_limits import Deadline

# The value of SO_LINGER that resets the connection: on, for 0 seconds.
RESET = struct.pack("ii", 1, 0)

MIN_TAKEN_BYTES = 1024 * 1024
STOPPING_WRITE_S = 5.0

# The times of `HalfClosedWatch`.
PROBE_AFTER_S = 0.5
CHECK_EVERY_S = 0.25


class ClientOutput:
    """The sending side of a connection. Its `flow` pauses while the client has much to take."""

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        loop: asyncio.AbstractEventLoop,
        write_timeout_s: float,
    ) -> None:
        self._transport = transport
        self.flow = flow
        self._timeout_s = write_timeout_s
        self._written_bytes = 0
        self._taken_bytes = 0  # when the current time began
        self._is_lost = False
        self._deadline = Deadline(loop, self._on_deadline)

    def write(self, data: bytes) -> None:
        """Write `data`, or nothing if the connection is closing."""
        transport = self._transport
        if transport.is_closing():
            return
        was_taken = not transport.get_write_buffer_size()
        transport.write(data)
        self._written_bytes += len(data)
        if was_taken and transport.get_write_buffer_size():
            self._begin_time()

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was written, or is gone."""
        if self.flow.write_paused:
            await self.flow.drain()

    def abort(self) -> None:
        """Close the connection at once, and discard what the kernel has not sent yet."""
        if self._is_lost:
            return
        # Otherwise the kernel would go on to send its part, megabytes, to a slow client.
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._transport.abort()

    def hurry(self) -> None:
        """Shorten the time for the client, because the server stops."""
        self._timeout_s = min(self._timeout_s, STOPPING_WRITE_S)
        if self._transport.get_write_buffer_size():
            self._begin_time()

    def close(self) -> None:
        """Stop the timer, after the connection is lost."""
        self._is_lost = True
        self._deadline.close()
        self.flow.resume_writing()

    def _begin_time(self) -> None:
        self._taken_bytes = self._written_bytes - self._transport.get_write_buffer_size()
        self._deadline.set(self._timeout_s)

    def _on_deadline(self) -> None:
        waiting_bytes = self._transport.get_write_buffer_size()
        if not waiting_bytes:
            return
        if self._written_bytes - waiting_bytes - self._taken_bytes < MIN_TAKEN_BYTES:
            self.abort()
        else:
            self._begin_time()


class HalfClosedWatch:
    """The watch over one connection whose client has closed its sending side.

    `probe` writes an interim response, if the protocol allows one now.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, probe: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._probe = probe
        self._has_probed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> bool:
        """Start to watch during one request. Return False if the client is already known to be gone."""
        if self._is_gone():
            return False
        self._has_probed = False
        self._wait(PROBE_AFTER_S)
        return True

    def stop(self) -> None:
        """Stop to watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._transport.is_closing():
            return
        if self._is_gone():
            self._transport.abort()
            return
        if not self._has_probed:
            self._has_probed = True
            self._probe()
        self._wait(CHECK_EVERY_S)

    def _is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), 0)
        return bool(poll.poll(0))  # POLLHUP or POLLERR, which are always reported


def has_unread_bytes(transport: asyncio.BaseTransport) -> bool:
    """Return True if the kernel has bytes of this connection that the event loop has not read yet."""
    fd = transport.get_extra_info("socket").fileno()
    return any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
