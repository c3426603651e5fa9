"""Whose work is next, by the time that each client has had. Uses no clock, thread or event loop.

The client that has had the least time goes first, and the works of one client take turns. A client that comes
begins where those are that wait, so that nobody saves time up; one that comes back keeps what it has had.
How long a turn takes is known when it ends. Until then it counts as long as the client's turns before.

Nothing can interrupt a turn. So clients whose turns are long never have all places, and a new client has one,
until its first turn ends: nobody knows yet whether it is long.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

W = TypeVar("W")

# A picture takes long to decode above this. The largest photographs take about a second.
LONG_S = 0.5

_NEW_WEIGHT = 0.5  # of the last turn, in what is expected of a client
_MOST_KEPT = 1024  # clients without work whose times are kept


@dataclass(eq=False, slots=True)
class _ClientTime(Generic[W]):
    """The works of a client that wait, the turns that it has now, and the seconds that it has had."""

    name: str | None
    had_s: float
    expected_s: float
    is_known: bool = False  # a turn of it has ended
    running: int = 0
    works: deque[W] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Turn(Generic[W]):
    """A turn of one work, which counts `charged_s` until it ends."""

    client: _ClientTime[W]
    work: W
    charged_s: float


class ClientTurns(Generic[W]):
    """The works that wait, for so many `places`.

    `expected_s` are the seconds of a new client's turn. A turn of more than `long_s` is long.
    """

    def __init__(self, places: int, expected_s: float, long_s: float = LONG_S) -> None:
        self._places, self._expected_s, self._long_s = places, expected_s, long_s
        self._clients: dict[str | None, _ClientTime[W]] = {}  # in the order of their first works
        self._long = 0  # turns of clients whose turns are long
        self._time_s = 0.0  # that the client which is next has had

    @property
    def works(self) -> list[W]:
        """All works that wait."""
        return [work for client in self._clients.values() for work in client.works]

    def add(self, name: str | None, work: W) -> None:
        """Let a work of a client wait for a turn, behind its others."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _ClientTime(name, self._time_s, self._expected_s)
        if not client.works and not client.running:
            client.had_s = max(client.had_s, self._time_s)
        client.works.append(work)

    def remove(self, name: str | None, work: W) -> None:
        """Let a work wait no more, if it does."""
        client = self._clients.get(name)
        if client is not None and work in client.works:
            client.works.remove(work)
            self._forget()

    def take(self) -> Turn[W] | None:
        """Return the next turn; `None` if no work waits, or none that may have a place."""
        waiting = [
            each
            for each in self._clients.values()
            if each.works and (each.is_known or not each.running or self._places == 1)
        ]
        if self._places > 1 and self._long >= self._places - 1:
            waiting = [each for each in waiting if each.expected_s <= self._long_s]
        if not waiting:
            return None
        client = min(waiting, key=lambda each: each.had_s)
        self._time_s = max(self._time_s, client.had_s)
        turn = Turn(client, client.works.popleft(), client.expected_s)
        client.had_s += turn.charged_s
        client.running += 1
        self._long += turn.charged_s > self._long_s
        return turn

    def end(self, turn: Turn[W], took_s: float) -> None:
        """Note how long a turn took."""
        client = turn.client
        client.had_s += took_s - turn.charged_s
        client.expected_s += _NEW_WEIGHT * (took_s - client.expected_s)
        client.running -= 1
        client.is_known = True
        self._long -= turn.charged_s > self._long_s
        self._forget()

    def _forget(self) -> None:
        """Forget clients without work, the first to come first, if there are very many."""
        if len(self._clients) <= _MOST_KEPT:
            return
        idle = [name for name, each in self._clients.items() if not each.works and not each.running]
        for name in idle[: len(self._clients) - _MOST_KEPT]:
            del self._clients[name]
