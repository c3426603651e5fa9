"""The state machine of a graceful stop, without sockets, signals or clocks.

How it works. The four phases follow each other in this order, and none is entered again:

    READY ──stop──> LAME_DUCK ──lame_duck_s──> DRAINING ──all answered, or drain_s──> STOPPED

READY      Requests are served.
LAME_DUCK  Requests are still served, but `/readyz` answers 503, so that load balancers take this
           process out of rotation. A server that closes its listener at once loses the requests
           that load balancers send until then.
DRAINING   The listener and idle connections are closed. No new request begins. A request whose
           headers have arrived is read to its end, computed and answered.
STOPPED    Every accepted request was answered, or `drain_s` is over, or a second signal arrived.

Rules:
1. The first SIGTERM starts LAME_DUCK. SIGINT comes from a terminal, where there is no load balancer,
   and starts DRAINING at once.
2. A second signal of either kind stops at once.
3. The exit status is 0 if and only if every accepted request was answered.
4. A process that is not ready yet has no requests to lose, and a signal starts DRAINING at once.

`runner` reports signals and the time to `Drain`, and acts on the phase.
"""

from enum import IntEnum


class Phase(IntEnum):
    """The phases of a graceful stop, described in the docstring of this module."""

    READY = 0
    LAME_DUCK = 1
    DRAINING = 2
    STOPPED = 3


class Drain:
    """The current phase and the end of its time. Times are seconds on one monotonic clock."""

    def __init__(self, *, lame_duck_s: float) -> None:
        self._lame_duck_s = lame_duck_s
        self._phase = Phase.READY
        self._lame_duck_ends_at = 0.0
        self._is_forced = False

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self._phase

    @property
    def is_serving(self) -> bool:
        """True if no stop has been requested."""
        return self._phase is Phase.READY

    @property
    def is_forced(self) -> bool:
        """True if a second stop was requested, so that the process exits without waiting."""
        return self._is_forced

    def stop(self, now: float, *, at_once: bool = False) -> None:
        """Request a stop; `at_once` skips the lame-duck time. Safe in a signal handler."""
        if self._phase is not Phase.READY:
            self._is_forced = True
            self._phase = Phase.STOPPED
            return
        self._lame_duck_ends_at = now + self._lame_duck_s
        self._phase = Phase.DRAINING if at_once else Phase.LAME_DUCK

    def advance(self, now: float) -> Phase:
        """Return the phase at `now`, which becomes DRAINING when the lame-duck time is over."""
        if self._phase is Phase.LAME_DUCK and now >= self._lame_duck_ends_at:
            self._phase = Phase.DRAINING
        return self._phase

    def finish(self) -> None:
        """Enter STOPPED: every accepted request was answered, or `drain_s` is over."""
        self._phase = Phase.STOPPED
