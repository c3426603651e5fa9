"""One of several server processes: its listening socket, its share of the limits, and its supervisor."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from vecmill_server.drain import Drain
from vecmill_server.listener import Listener
from vecmill_server.processes.siblings import Siblings

# The messages of a process to its supervisor. A process receives PROBED and the number of a signal.
READY = b"r"
PROBED = b"p"

CHECK_EVERY_S = 1.0


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
        """Start a thread that tells the supervisor of probes, and stops the process when told to."""
        threading.Thread(target=self._watch, args=(drain,), name="vecmill-member", daemon=True).start()

    def announce(self, announce: Callable[[str], None], message: str) -> None:
        """Tell the supervisor that this process is ready. The first process prints the ready message."""
        if self._is_first:
            announce(message)
        with suppress(OSError):  # the supervisor has ended, and this process is about to stop
            self._control.sendall(READY)

    def _others_accept(self) -> bool:
        return self._outlives_server or not self._is_server_stopping

    def _watch(self, drain: Drain) -> None:
        told_of = drain.probed_at
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while not self._is_server_stopping:
            if poll.poll(CHECK_EVERY_S * 1e3):
                self._stop(drain)
            elif drain.probed_at != told_of:
                told_of = drain.probed_at
                with suppress(OSError):
                    self._control.sendall(PROBED)

    def _stop(self, drain: Drain) -> None:
        """Stop as the supervisor says, or as at SIGTERM if the supervisor has ended."""
        try:
            message = self._control.recv(64)
        except OSError:
            message = b""
        if message.startswith(PROBED):
            drain.note_probe(time.monotonic())
            message = message.removeprefix(PROBED)
        self._is_server_stopping = True
        os.kill(os.getpid(), message[0] if message else signal.SIGTERM)
