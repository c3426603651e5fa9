"""What the server tells systemd: that it is ready, that it stops, and that it is alive.

How it works. systemd names a datagram socket in NOTIFY_SOCKET, and reads lines such as READY=1 from it. With
WatchdogSec, it names the longest silence in WATCHDOG_USEC, and kills and restarts a server that is silent for
longer. The sign of life comes from the event loop, so a loop that hangs is silent. With several processes,
the supervisor sends all messages, since systemd reads those of the main process only.

The `watchdog` of the process ends it sooner, and logs the cause. systemd's is for a process in which no
thread can run any more.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from vecmill.values.clock import Clock, monotonic

READY, STOPPING, ALIVE = b"READY=1", b"STOPPING=1", b"WATCHDOG=1"
# So many signs of life are sent in the longest silence. systemd asks for two; a busy loop may be late.
SIGNS = 4
# The pause between two looks whether a sign is due.
LOOK_S = 0.5
_MICROSECONDS = 1_000_000


class ServiceManager:
    """The manager that started this process; without effect if there is none.

    `address` is that of its socket. `silence_s` is the longest silence, 0 without a limit. No call waits.
    """

    def __init__(self, address: str = "", silence_s: float = 0.0, clock: Clock = monotonic) -> None:
        # The name of an abstract socket begins with a null byte, which a variable cannot have.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._pause_s = silence_s / SIGNS
        self._clock = clock
        self._alive_at = clock()
        self._is_stopping = False

    def ready(self) -> None:
        """Tell that requests are answered."""
        self._send(READY)

    def stopping(self) -> None:
        """Tell that the server stops, once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send(STOPPING)

    def tick(self) -> None:
        """Give a sign of life, if one is due. Call this often, on the loop whose life it shows."""
        now = self._clock()
        if self._pause_s and now >= self._alive_at:
            self._alive_at = now + self._pause_s
            self._send(ALIVE)

    async def give_signs_of_life(self) -> None:
        """Give each sign that is due until the task is cancelled. A stop may take longer than a silence."""
        while True:
            self.tick()
            await asyncio.sleep(LOOK_S)

    def _send(self, message: bytes) -> None:
        if not self._address:
            return
        # The manager may have gone or be busy. A lost sign of life is followed by the next one.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message, socket.MSG_DONTWAIT, self._address)


def find_manager(environment: Mapping[str, str], clock: Clock = monotonic) -> ServiceManager:
    """Return the manager that the variables of this process name."""
    address = environment.get("NOTIFY_SOCKET", "")
    limit = environment.get("WATCHDOG_USEC", "")
    is_watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    silence_s = int(limit) / _MICROSECONDS if limit.isdecimal() and is_watched else 0.0
    return ServiceManager(address, silence_s, clock)
