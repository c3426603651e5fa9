"""The states of a connection, and how long it may stay in each.

                  ┌────────────────────────────────────────────┐
    IDLE ──> HEAD ┴─> BODY ──> ANSWER ──> IDLE                 │
                        │        └──────> TURN ──> EARLY_HEAD ─┘       any ──> LINGER ──> closed
                        ├──> REST ──────> IDLE, EARLY_HEAD
                        └──> FAILED ────> LINGER

IDLE        No byte of the next request has arrived. Empty lines do not count.
HEAD        `request_head` reads a head. A new connection begins here: its first head is due at once.
EARLY_HEAD  As HEAD, but the head began to arrive before the earlier request was answered.
BODY        `body_framing` finds the end of the body, `request_cycle` hands it to the application. A body that
            arrived with its head leaves out this state.
REST        The application has answered before the end of the body. The rest is discarded.
ANSWER      The request is complete. Bytes of the next request wait until it is answered. If there are many,
            the connection stops reading.
TURN        The request is answered, and the next one waits for its turn among other connections.
FAILED      The body was invalid or late. The connection stops reading until the application has answered.
LINGER      The server has closed its sending side. The client may still be sending, and closing a socket with
            unread bytes resets the connection, so that the last response can be lost. Therefore the server
            discards further input for a while, and then closes the socket.

The times of this table are those for a client to send. Two more do not depend on the state: `client_output`
limits the time for a client to take a response, and `ConnectionShare.draw_age_s` the age of a connection.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

# The time for which the input of a refused client is discarded.
LINGER_S = 2.0


class State(Enum):
    """What a connection waits for, described in the docstring of this module."""

    IDLE = auto()
    HEAD = auto()
    EARLY_HEAD = auto()
    BODY = auto()
    REST = auto()
    ANSWER = auto()
    TURN = auto()
    FAILED = auto()
    LINGER = auto()

    # That of `Enum` is a function in Python, which would be called several times for each request.
    __hash__ = object.__hash__


class Late(Enum):
    """What happens to a connection whose time in a state ends."""

    CLOSE = auto()
    REFUSE = auto()  # a response with status 408, then LINGER
    FAIL = auto()  # the application gets an error, and answers with it
    LINGER = auto()  # no response, because it could be taken for that of another request


@dataclass(frozen=True, slots=True)
class StateTime:
    """How long a connection may stay in a state, and what happens then.

    `seconds` is `None` if the time of the state before goes on.
    """

    seconds: float | None
    late: Late


def state_times(*, keep_alive_s: float, head_s: float, body_s: float) -> Mapping[State, StateTime]:
    """Return the time of each state in which the client must send. The other states have none."""
    return {
        State.IDLE: StateTime(keep_alive_s, Late.CLOSE),
        State.HEAD: StateTime(head_s, Late.REFUSE),
        State.EARLY_HEAD: StateTime(head_s, Late.LINGER),
        State.BODY: StateTime(body_s, Late.FAIL),  # or as many seconds as the application allows
        State.REST: StateTime(None, Late.CLOSE),
        State.LINGER: StateTime(LINGER_S, Late.CLOSE),
    }


class Deadline:
    """One deadline, which calls `on_expiry` when it passes.

    Nearly every deadline is cleared or moved before it passes. Therefore the timer of the event loop stays
    when the deadline changes, and looks at the deadline when it fires.
    """

    __slots__ = ("_at", "_left_s", "_loop", "_on_expiry", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expiry: Callable[[], None]) -> None:
        self._loop = loop
        self._on_expiry = on_expiry
        self._at: float | None = None
        self._left_s: float | None = None  # while the deadline is held
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self._left_s = None
        self._at = at = self._loop.time() + seconds
        if self._timer is None:
            self._start(at, seconds)
        elif at < self._timer_at:
            self._timer.cancel()
            self._start(at, seconds)

    def clear(self) -> None:
        """Remove the deadline."""
        self._at = self._left_s = None

    def hold(self) -> None:
        """Stop the time that is left, until `go_on`."""
        if self._at is not None:
            self._left_s = self._at - self._loop.time()
            self._at = None

    def go_on(self) -> None:
        """Let the time go on that `hold` has stopped."""
        if self._left_s is not None:
            self.set(self._left_s)

    def close(self) -> None:
        """Remove the deadline and the timer."""
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, at: float, seconds: float) -> None:
        self._timer_at = at
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._at is None:
            return
        left_s = self._at - self._loop.time()
        if left_s > 0.001:
            self._start(self._at, left_s)
            return
        self._at = None
        self._on_expiry()
