"""The state machine of a graceful stop, without sockets, signals or clocks.

How it works. The four phases follow each other in this order, and none is entered again:

    READY ──stop──> LAME_DUCK ──lame_duck_s──> DRAINING ──all answered, or drain_s──> STOPPED

READY      Requests are served.
LAME_DUCK  Requests are still served, but `/readyz` answers 503, so that load balancers take this
           process out of rotation. A server that closes its listener at once loses the requests
           that load balancers send until then.
DRAINING   The listener is closed, after the connections in its queue are accepted (see `listener`).
           Each response closes its connection. A connection that stays idle is closed (see `http1.pauses`).
           A request that has begun to arrive is read to its end, computed and answered.
STOPPED    Every accepted request was answered, or `drain_s` is over, or a second signal arrived.

Rules:
1. The first SIGTERM or SIGHUP starts LAME_DUCK. SIGINT comes from a terminal, where there is no load
   balancer, and starts DRAINING at once.
2. The lame-duck time that the operator sets is always kept. By default it is kept only if a readiness probe
   has asked in the last minute: otherwise no load balancer watches, and waiting helps nobody.
3. A second SIGTERM or SIGINT stops at once. SIGHUP does not: a terminal that closes sends it twice.
4. The exit status is 0 if and only if every accepted request was answered.
5. A process that is not ready yet has no requests to lose, and a signal starts DRAINING at once.

`runner` reports signals and the time to `Drain`, and acts on the phase. `Drain` calls it as soon as a stop is
requested.
"""

import math
from collections.abc import Callable
from enum import IntEnum

from vecmill_server.base.settings import DEFAULT_LAME_DUCK_S

# A load balancer that asks less often than this does not notice a lame duck in time either.
PROBE_MEMORY_S = 60.0


class Phase(IntEnum):
    """The phases of a graceful stop, described in the docstring of this module."""

    READY = 0
    LAME_DUCK = 1
    DRAINING = 2
    STOPPED = 3


class Drain:
    """The current phase and the end of its time. Times are seconds on one monotonic clock.

    `is_forced` is True if a second stop was requested, so that the process exits without waiting. `probed_at`
    is the time of the last readiness probe, and minus infinity before the first. `on_stop` is called after
    each request to stop, in the thread or signal handler that requests it.
    """

    def __init__(self, *, lame_duck_s: float | None) -> None:
        """`lame_duck_s` of `None` means the default, which depends on the readiness probes."""
        self.phase = Phase.READY
        self.is_forced = False
        self.probed_at = -math.inf
        self.on_stop: Callable[[], object] = lambda: None
        self._lame_duck_s = lame_duck_s
        self._lame_duck_ends_at = 0.0

    @property
    def is_serving(self) -> bool:
        """True if no stop has been requested."""
        return self.phase is Phase.READY

    def note_probe(self, now: float) -> None:
        """Note that a readiness probe has asked."""
        self.probed_at = now

    def stop(self, now: float, *, at_once: bool = False) -> None:
        """Request a stop; `at_once` skips the lame-duck time. Safe in a signal handler."""
        if self.phase is not Phase.READY:
            self.is_forced = True
            self.phase = Phase.STOPPED
        else:
            self._begin_stop(now, at_once=at_once)
        self.on_stop()

    def _begin_stop(self, now: float, *, at_once: bool) -> None:
        lame_duck_s = self._lame_duck_s
        if lame_duck_s is None:
            lame_duck_s = DEFAULT_LAME_DUCK_S if now - self.probed_at <= PROBE_MEMORY_S else 0.0
        self._lame_duck_ends_at = now + lame_duck_s
        self.phase = Phase.DRAINING if at_once else Phase.LAME_DUCK

    def advance(self, now: float) -> Phase:
        """Return the phase at `now`, which becomes DRAINING when the lame-duck time is over."""
        if self.phase is Phase.LAME_DUCK and now >= self._lame_duck_ends_at:
            self.phase = Phase.DRAINING
        return self.phase

    def finish(self) -> None:
        """Enter STOPPED: every accepted request was answered, or `drain_s` is over."""
        self.phase = Phase.STOPPED
