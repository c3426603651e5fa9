"""How the server stops, as a state machine without sockets, signals or clocks.

How it works. There are four phases, and they only ever go forward:

    READY ──stop──> LAME_DUCK ──lame_duck_s──> DRAINING ──all answered, or drain_s──> STOPPED

READY      Requests are served.
LAME_DUCK  Requests are served just the same, but `/readyz` says 503, so that balancers take this
           process out of rotation. Closing the listener at once, as servers commonly do, loses the
           requests that balancers still send meanwhile.
DRAINING   The listener is closed, idle connections too. No new request begins; one of which the
           server has read the head is read to its end, computed and answered.
STOPPED    Everything was answered, or `drain_s` is over, or somebody asked a second time.

Rules:
1. The first SIGTERM starts LAME_DUCK. SIGINT is a person at a terminal with no balancer behind:
   it goes to DRAINING at once.
2. A second signal of either kind stops at once.
3. The exit status is 0 exactly when everything that was accepted was answered.
4. A process that has not become ready yet has nothing to lose: it goes to DRAINING at once.

`runner` tells it of signals and of the time, and does what the phase says.
"""

from enum import IntEnum


class Phase(IntEnum):
    """See the top of the file."""

    READY = 0
    LAME_DUCK = 1
    DRAINING = 2
    STOPPED = 3


class Drain:
    """The phase, and when it ends. Times are seconds on one monotonic clock."""

    def __init__(self, *, lame_duck_s: float) -> None:
        self._lame_duck_s = lame_duck_s
        self._phase = Phase.READY
        self._lame_duck_ends_at = 0.0
        self._is_forced = False

    @property
    def phase(self) -> Phase:
        """Where we are."""
        return self._phase

    @property
    def is_serving(self) -> bool:
        """Whether nobody has asked to stop."""
        return self._phase is Phase.READY

    @property
    def is_forced(self) -> bool:
        """Whether somebody asked twice, so that nothing is waited for."""
        return self._is_forced

    def stop(self, now: float, *, at_once: bool = False) -> None:
        """Somebody asks to stop; `at_once` leaves the lame-duck time out. Safe in a signal handler."""
        if self._phase is not Phase.READY:
            self._is_forced = True
            self._phase = Phase.STOPPED
            return
        self._lame_duck_ends_at = now + self._lame_duck_s
        self._phase = Phase.DRAINING if at_once else Phase.LAME_DUCK

    def advance(self, now: float) -> Phase:
        """The phase at `now`: DRAINING once the lame-duck time is over."""
        if self._phase is Phase.LAME_DUCK and now >= self._lame_duck_ends_at:
            self._phase = Phase.DRAINING
        return self._phase

    def finish(self) -> None:
        """Everything was answered, or the time for it is over."""
        self._phase = Phase.STOPPED
