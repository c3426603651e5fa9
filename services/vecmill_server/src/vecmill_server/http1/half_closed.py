"""The detection of clients that are gone, among clients that have only closed their sending side.

A FIN does not tell whether the client still reads: `shutdown(SHUT_WR)` and `close()` look the same until the
server writes. A client that is gone answers what the server writes with a reset. Therefore the server writes
`100 Continue`, an interim response that every HTTP/1.1 client must accept (RFC 9110, section 15.2), if the
response takes longer than `PROBE_AFTER_S`. A reset cancels the request, so its texts are not computed.
"""

import asyncio
import fcntl
import select
import termios
from collections.abc import Callable

PROBE_AFTER_S = 0.5
CHECK_EVERY_S = 0.25


class HalfClosedWatch:
    """The watch over one connection whose client has closed its sending side.

    `probe` writes an interim response, if the protocol allows one now.
    """

    def __init__(self, transport: asyncio.Transport, probe: Callable[[], None]) -> None:
        self._transport = transport
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
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

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
