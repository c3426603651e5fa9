"""The writing of responses to one connection, with a time limit for the client to take them.

Rule: in each `write_timeout_s`, the client must take at least `MIN_TAKEN_BYTES` of the response, or all the
rest. Otherwise the connection is aborted. Bytes in the buffers of the kernel count as taken. While the server
stops, the time is `STOPPING_WRITE_S`.
"""

import asyncio
import socket
import struct

from uvicorn.protocols.http.flow_control import FlowControl

from vecmill_server.http1.deadline import Deadline

# The value of SO_LINGER that resets the connection: on, for 0 seconds.
RESET = struct.pack("ii", 1, 0)

MIN_TAKEN_BYTES = 1024 * 1024
STOPPING_WRITE_S = 5.0


class ClientOutput:
    """The sending side of a connection."""

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        loop: asyncio.AbstractEventLoop,
        write_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._flow = flow
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
        if self._flow.write_paused:
            await self._flow.drain()

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
        self._flow.resume_writing()

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
