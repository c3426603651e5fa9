"""The side of one server process in its connection to the supervisor of several (`supervisor`)."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from vecmill_server.process.listener import Listener
from vecmill_server.service.drain import Drain
from vecmill_server.telemetry.siblings import Siblings

# The messages of a process to its supervisor.
READY = b"r"
ALIVE = b"a"
PROBED = b"p"
# The messages of the supervisor to a process are QUESTION, PROBED, and the number of a signal.
QUESTION = b"?"


class Member:
    """The process's side of the connection to its supervisor.

    `shares` are the options that this process has instead of those of the whole server. The first process of
    a server accepts connections at once, so that probes can tell a loading server from a dead one. Later
    processes accept connections when their models are loaded.
    """

    def __init__(
        self,
        shares: Mapping[str, int],
        listener: Listener,
        control: socket.socket,
        siblings: Siblings,
        *,
        is_first: bool,
    ) -> None:
        self.shares = shares
        self.siblings = siblings
        self._control = control
        self._is_first = is_first
        self._is_server_stopping = False
        self._outlives_server = listener.is_inherited
        self.listener = replace(
            listener,
            is_inherited=listener.is_inherited or not is_first,
            others_accept=self._others_accept,
        )

    def watch(self, drain: Drain) -> None:
        """Start a thread that answers the supervisor, and stops the process when told to.

        The thread runs whatever the event loop does, which the `watchdog` of the process watches.
        """
        threading.Thread(target=self._watch, args=(drain,), name="vecmill-member", daemon=True).start()

    def announce(self, announce: Callable[[str], None], message: str) -> None:
        """Tell the supervisor that this process is ready. The first process prints the ready message."""
        if self._is_first:
            announce(message)
        self._tell(READY)

    def _others_accept(self) -> bool:
        return self._outlives_server or not self._is_server_stopping

    def _watch(self, drain: Drain) -> None:
        told_of = drain.probed_at
        while messages := self._receive():
            for message in messages:
                if message == QUESTION[0]:
                    probed_at = drain.probed_at
                    self._tell(ALIVE if probed_at == told_of else PROBED + ALIVE)
                    told_of = probed_at
                elif message == PROBED[0]:
                    drain.note_probe(time.monotonic())
                else:
                    self._stop(message)
        if not self._is_server_stopping:  # the supervisor has ended
            self._stop(signal.SIGTERM)

    def _receive(self) -> bytes:
        """Return the next messages of the supervisor; none if it has ended."""
        try:
            return self._control.recv(64)
        except OSError:
            return b""

    def _tell(self, message: bytes) -> None:
        with suppress(OSError):  # the supervisor has ended, and this process is about to stop
            self._control.sendall(message)

    def _stop(self, number: int) -> None:
        """Stop as at the signal `number`."""
        self._is_server_stopping = True
        os.kill(os.getpid(), number)
