"""The forecast: when waiting work will be computed, and whether one more request can be admitted. Pure.

A request is admitted only if it is expected to be answered in time, and to make no admitted request late:

- An interactive request must not wait longer than about `target_wait_s`.
- A bulk request must end before its deadline. All bulk requests are computed in one order, so the end of each
  can be predicted with the new request among them. No other request may become late through it.
- One client may not take all of the room. The work that a client has waiting may be at most `CLIENT_ROOM`
  times the room that is left for everybody, so a newcomer always finds room. The room is such that a client
  that is alone may fill `target_wait_s`, or `timeout_s` with bulk requests.

A request that does not fit gets the time after which it is expected to fit. Background requests have no
deadline and wait for as long as it takes; only the size of the queue limits them.

A bulk request that has not begun, and can no longer end in time because the machine has become slower for
good, is ended early, before its work would be wasted.

The time limit of a request grows with its size: `timeout_s`, and `TIMEOUT_FACTOR` times the seconds that the
request would take on an idle machine. A request with a time limit of its own is refused at once if even an
idle machine could not meet the limit. Now and then an idle machine tries such a request, since only calls
correct the prediction.

Source of the rule for clients: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
switches", IEEE/ACM Transactions on Networking 6 (1998).
"""

from collections.abc import Sequence

from vecmill.batching.line import Line
from vecmill.batching.pace import Pace
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import QueuedRequest, Terms
from vecmill.config import MillConfig
from vecmill.requests import Priority

# The work that one client may have waiting, as a multiple of the room that is left.
CLIENT_ROOM = 2.0

# Predictions are multiplied by this before they are compared with a deadline: other processes may take half
# of the machine at any moment.
CAUTION = 2.0

# Bulk work that may become late gets half of the machine, whatever else waits.
LEAST_BULK_SHARE = 0.5

# The time limit of a request grows by this multiple of its predicted time on an idle machine. So a request of
# any size can be admitted when no other bulk request waits.
TIMEOUT_FACTOR = CAUTION / LEAST_BULK_SHARE

# The core seconds of work over which the share of interactive work is averaged.
_MEMORY_S = 10.0


class Forecast:
    """The predicted end of the work in a queue; see the module docstring."""

    def __init__(self, queue: Queue, config: MillConfig, pace: Pace, *, cores: int) -> None:
        """`cores` is the number of cores on which narrow calls run side by side."""
        self.cores = cores
        self._lines = queue.lines
        self._config = config
        self._pace = pace
        self._interactive_share = 0.0

    @property
    def waiting_s(self) -> float:
        """The seconds that all waiting work takes."""
        return sum(line.waiting_s for line in self._lines.values()) / self._rate()

    def own_s(self, costs_s: Sequence[float]) -> float:
        """Return the seconds that texts of these core seconds take on an idle machine."""
        return max(sum(costs_s) / self._rate(), self._pace.slowness * max(costs_s))

    def time_limit_s(self, own_s: float) -> float:
        """Return the time limit of a request that takes `own_s` on an idle machine."""
        return self._config.queue.timeout_s + TIMEOUT_FACTOR * own_s

    def choose_priority(self, own_s: float) -> Priority:
        """Return the priority of a request that takes `own_s` on an idle machine and asks for none."""
        return Priority.BULK if own_s > self._config.batch.bulk_s else Priority.INTERACTIVE

    def count(self, priority: Priority, cost_s: float) -> None:
        """Count work that is about to be computed."""
        part = min(1.0, cost_s / _MEMORY_S)
        self._interactive_share += part * ((priority is Priority.INTERACTIVE) - self._interactive_share)

    def hopeless(self, now: float) -> list[QueuedRequest]:
        """Return the bulk requests that have not begun and can no longer end in time."""
        found, ahead_s, rate = [], 0.0, self.cores / self._pace.lasting_slowness
        for request in self._lines[Priority.BULK].requests():
            ahead_s += request.waiting_s
            if request.started_at is None and ahead_s / rate > request.deadline - now:
                ahead_s -= request.waiting_s
                found.append(request)
        return found

    def delay_s(self, costs_s: Sequence[float], terms: Terms, now: float) -> float:
        """Return 0 if a request fits now, otherwise the seconds after which it is expected to fit."""
        match terms.priority:
            case Priority.INTERACTIVE:
                return self._interactive_delay_s(sum(costs_s), terms, now)
            case Priority.BULK:
                return max(self._room_delay_s(terms.client), self._late_s(costs_s, terms, now))
            case Priority.BACKGROUND:
                return 0.0

    def delays(self, client: str | None) -> bool:
        """Return whether even the smallest request of `client` has to wait for room.

        Reads only numbers, so it may be called without the lock.
        """
        return self._least_wait_s(client) > 0

    def least_delay_s(self, client: str | None, tokens_s: float) -> float:
        """Return at least how long any request of `client` has to wait for room, 0 if it may fit now.

        `tokens_s` is more than the core seconds that the request could take.
        """
        delay_s = self._least_wait_s(client)
        if delay_s and tokens_s / self._rate() > self._config.batch.bulk_s:
            return min(delay_s, self._room_delay_s(client))
        return delay_s

    def likely_delay_s(
        self, costs_s: Sequence[float], client: str | None, priority: Priority | None, now: float
    ) -> float:
        """Return how long a request of about these core seconds has to wait, 0 if it is not surely bulk work.

        The costs are a guess, made before the texts are tokenised. The request counts as half of it, so that
        no request is refused because of the guess that would fit.
        """
        half_s = [cost_s / 2 for cost_s in costs_s]
        if (priority or self.choose_priority(self.own_s(half_s))) is not Priority.BULK:
            return 0.0
        deadline = now + self.time_limit_s(self.own_s(costs_s))
        return self.delay_s(half_s, Terms(Priority.BULK, deadline, client), now)

    def may_be_late(self, now: float) -> bool:
        """Return whether a waiting bulk request would miss its deadline at the present shares."""
        ahead_s, rate = 0.0, self._bulk_rate() / CAUTION
        for request in self._lines[Priority.BULK].requests():
            ahead_s += request.waiting_s
            if ahead_s / rate > request.deadline - now:
                return True
        return False

    def _interactive_delay_s(self, cost_s: float, terms: Terms, now: float) -> float:
        line, rate = self._lines[Priority.INTERACTIVE], self._interactive_rate()
        end_s = (line.waiting_s + cost_s) / rate
        return max(self._wait_delay_s(line, terms.client, rate), end_s - (terms.deadline - now), 0.0)

    def _least_wait_s(self, client: str | None) -> float:
        line = self._lines[Priority.INTERACTIVE]
        return self._wait_delay_s(line, client, self._interactive_rate()) if line else 0.0

    def _wait_delay_s(self, line: Line, client: str | None, rate: float) -> float:
        return _delay_for_room(
            line.waiting_s_of(client) / rate, line.waiting_s / rate, self._config.queue.target_wait_s
        )

    def _room_delay_s(self, client: str | None) -> float:
        line, rate = self._lines[Priority.BULK], self._bulk_rate()
        own_s = line.waiting_s_of(client) / rate
        # A client with nothing waiting may always bring one request, if nobody becomes late through it.
        return _delay_for_room(own_s, line.waiting_s / rate, self._config.queue.timeout_s) if own_s else 0.0

    def _late_s(self, costs_s: Sequence[float], terms: Terms, now: float) -> float:
        """Return by how many seconds the request, or another one through it, would miss a deadline."""
        line, rate = self._lines[Priority.BULK], self._bulk_rate() / CAUTION
        cost_s = sum(costs_s)
        if not line:  # waiting would not help, so the request may try
            return max(0.0, self.own_s(costs_s) - (terms.deadline - now))
        tag = line.tag_for(terms.client, cost_s)
        before_s = ahead_s = late_s = 0.0
        for request in line.requests():
            ahead_s += request.waiting_s
            if request.tag <= tag:
                before_s = ahead_s
                continue
            slack_s = request.deadline - now - ahead_s / rate
            if 0 <= slack_s < cost_s / rate:
                late_s = max(late_s, cost_s / rate - slack_s)
        end_s = max((before_s + cost_s) / rate, CAUTION * self.own_s(costs_s))
        return max(late_s, end_s - (terms.deadline - now))

    def _rate(self) -> float:
        """Return the core seconds of work, as counted in the lines, that are computed in a second."""
        return self.cores / self._pace.slowness

    def _interactive_rate(self) -> float:
        """Return the core seconds of interactive work that are computed in a second."""
        weight = self._config.batch.interactive_weight
        others = sum(bool(self._lines[other]) for other in (Priority.BULK, Priority.BACKGROUND))
        return self._rate() * weight / (weight + others)

    def _bulk_rate(self) -> float:
        share = (1.0 - self._interactive_share) / (1 + bool(self._lines[Priority.BACKGROUND]))
        return self._rate() * max(share, LEAST_BULK_SHARE)


def _delay_for_room(own_s: float, all_s: float, most_s: float) -> float:
    """Return 0 if a client that has `own_s` of `all_s` waiting may bring more, else the seconds until then.

    A client that is alone may have `most_s` waiting, and all clients together somewhat more.
    """
    limit_s = most_s * (1 + 1 / CLIENT_ROOM)
    excess_s = own_s - CLIENT_ROOM * (limit_s - all_s)
    if excess_s <= 0:
        return 0.0
    # Both shrink as time passes: the work of all by a second in a second, the client's by its part.
    return excess_s / (CLIENT_ROOM + (own_s / all_s if all_s else 1.0))
