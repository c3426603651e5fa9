"""The forecast: when waiting work will be computed, and whether one more request can be admitted. Pure.

A request is admitted only if it is expected to be answered in time, and to make no admitted request late:

- An interactive request must not wait longer than about `target_wait_s`. A request that takes longer than
  `bulk_s` on an idle machine is never interactive, whatever it asks for.
- A bulk request must end before its deadline. All bulk requests are computed in one order, so the end of each
  can be predicted with the new request among them. No other request may become late through it.
- One client may not take all of the room. A client may bring another request while the work that it has
  waiting is at most `CLIENT_ROOM` times the room that is left for everybody. So a client that is alone may
  fill `target_wait_s` with interactive requests, and `timeout_s` with bulk requests: its share, which is
  `CLIENT_ROOM / (1 + CLIENT_ROOM)` of the room for everybody.
- Nobody with nothing waiting is refused because of one other client. A newcomer, which is such a client,
  finds room for one request of any size, unless several clients fill the room: of the client with the most
  work, no more than its share counts. The work of a newcomer is added to the time limits of the bulk requests
  that come after it, and the work of one client before it is added to its own. Requests with a shorter time
  limit of their own get no more time.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

# A text whose call takes longer than this on one core is long: it is computed on several (`scheduler`).
LONG_CALL_S = 1.0

# Of so many cores of a wide call, this part shortens it.
WIDE_SHARE = 0.75

# The core seconds of work over which the share of interactive work is averaged.
_MEMORY_S = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a request would get among the waiting requests.

    `delay_s` is 0 if the request fits now, otherwise the seconds after which it is expected to fit.
    If it is admitted, `extra_s` is added to its time limit, and `others_s` to those of the requests `later`,
    which wait for it.
    """

    delay_s: float = 0.0
    extra_s: float = 0.0
    others_s: float = 0.0
    later: Sequence[QueuedRequest] = ()


_FITS = Place()


class Forecast:
    """The predicted end of the work in a queue; see the module docstring."""

    def __init__(self, queue: Queue, config: MillConfig, pace: Pace, *, cores: int, wide: int = 1) -> None:
        """`cores` is the number of cores on which narrow calls run side by side.

        `wide` is the number of cores on which a text that takes long is computed.
        """
        self.cores = cores
        self._wide = wide
        self._interactive = queue.lines[Priority.INTERACTIVE]
        self._bulk = queue.lines[Priority.BULK]
        self._background = queue.lines[Priority.BACKGROUND]
        self._config = config
        self._longest_s = config.queue.longest_s
        self._pace = pace
        self._interactive_share = 0.0

    @property
    def cost_s(self) -> float:
        """The core seconds of all waiting work, before they are slowed."""
        return self._interactive.waiting_s + self._bulk.waiting_s + self._background.waiting_s

    @property
    def waiting_s(self) -> float:
        """The seconds that all waiting work takes if no other model computes, for refusals."""
        return self.cost_s / self._rate()

    def own_s(self, costs_s: Sequence[float]) -> float:
        """Return the seconds that texts of these core seconds take on an idle machine."""
        longest_s = max(costs_s)
        if longest_s > LONG_CALL_S:
            longest_s /= max(1.0, WIDE_SHARE * self._wide)
        slowness = self._pace.slowness
        return max(sum(costs_s) / (self.cores / slowness), slowness * longest_s)

    def time_limit_s(self, own_s: float) -> float:
        """Return the time limit of a request that takes `own_s` on an idle machine."""
        return self._longest_s + TIMEOUT_FACTOR * own_s

    def choose_priority(self, own_s: float, asked: Priority | None = None) -> Priority:
        """Return the priority of a request that takes `own_s` on an idle machine and asks for `asked`.

        A request can ask for a less urgent priority than that of its size, not for a more urgent one.
        """
        if own_s > self._config.batch.bulk_s and asked is not Priority.BACKGROUND:
            return Priority.BULK
        return asked or Priority.INTERACTIVE

    def count(self, priority: Priority, cost_s: float) -> None:
        """Count work that is about to be computed."""
        part = min(1.0, cost_s / _MEMORY_S)
        self._interactive_share += part * ((priority is Priority.INTERACTIVE) - self._interactive_share)

    def hopeless(self, now: float) -> list[QueuedRequest]:
        """Return the bulk requests that have not begun and can no longer end in time."""
        if not self._bulk.jobs:
            return []
        found, ahead_s, rate = [], 0.0, self.cores / self._pace.lasting_slowness
        for request in self._bulk.requests():
            ahead_s += request.waiting_s
            if request.started_at is None and ahead_s / rate > request.deadline - now:
                ahead_s -= request.waiting_s
                found.append(request)
        return found

    def find_place(self, costs_s: Sequence[float], terms: Terms, now: float) -> Place:
        """Return the place of a request whose texts take these core seconds."""
        if terms.priority is Priority.BULK:
            return self._bulk_place(costs_s, terms, now)
        if terms.priority is Priority.BACKGROUND:
            return _FITS
        line, rate, cost_s = self._interactive, self._interactive_rate(), sum(costs_s)
        room_delay_s = self.interactive_delay_s(terms.client)
        left_s = terms.deadline - now
        if (line.waiting_s + cost_s) / rate <= left_s:  # in any order
            return Place(room_delay_s) if room_delay_s > 0 else _FITS
        ahead = _ahead_of(line, terms, cost_s)
        late_s = (ahead.counted_s + cost_s) / rate - left_s
        return Place(max(room_delay_s, late_s, 0.0), self._extra_s(ahead.extra_s))

    def interactive_delay_s(self, client: str | None) -> float:
        """Return how long even the smallest request of `client` waits for room, if it is interactive.

        Reads only numbers, so it may be called without the lock.
        """
        line, most_s = self._interactive, self._config.queue.target_wait_s
        all_s = line.waiting_s
        if not all_s:
            return 0.0
        rate = self._interactive_rate()
        if all_s <= most_s * rate:  # almost always, and then there is room for everybody
            return 0.0
        own_s = line.waiting_s_of(client)
        delay_s = _delay_for_room(own_s / rate, all_s / rate, most_s)
        if own_s or not delay_s:
            return delay_s
        all_s -= max(0.0, line.most_waiting_s() - most_s * rate)
        return _delay_for_room(0.0, all_s / rate, most_s)

    def least_delay_s(self, client: str | None, most_tokens: int) -> float:
        """Return at least how long any request of `client` of at most so many tokens waits for room.

        0 if it may fit now.
        """
        delay_s = self.interactive_delay_s(client)
        if delay_s and self._pace.text_cost_s(most_tokens) / self._rate() > self._config.batch.bulk_s:
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
        if self.choose_priority(self.own_s(half_s), priority) is not Priority.BULK:
            return 0.0
        deadline = now + self.time_limit_s(self.own_s(costs_s))
        return self.find_place(half_s, Terms(Priority.BULK, deadline, client), now).delay_s

    def may_be_late(self, now: float) -> bool:
        """Return whether a waiting bulk request would miss its deadline at the present shares."""
        ahead_s, rate = 0.0, self._bulk_rate() / CAUTION
        for request in self._bulk.requests():
            ahead_s += request.waiting_s
            if ahead_s / rate > request.deadline - now:
                return True
        return False

    def _room_delay_s(self, client: str | None) -> float:
        line, rate = self._bulk, self._bulk_rate()
        own_s = line.waiting_s_of(client) / rate
        # A client with nothing waiting may always bring one request, if it can be answered in time.
        return _delay_for_room(own_s, line.waiting_s / rate, self._longest_s) if own_s else 0.0

    def _bulk_place(self, costs_s: Sequence[float], terms: Terms, now: float) -> Place:
        line, rate = self._bulk, self._bulk_rate() / CAUTION
        cost_s, left_s = sum(costs_s), terms.deadline - now
        if not line.jobs:  # waiting would not help, so the request may try
            return Place(max(0.0, self.own_s(costs_s) - left_s))
        ahead = _ahead_of(line, terms, cost_s)
        end_s = max((ahead.counted_s + cost_s) / rate, CAUTION * self.own_s(costs_s))
        by_s, later = cost_s / rate, self._find_later(line, ahead, now)
        if ahead.is_newcomer:
            put_off = [each for each, _ in later if each.terms.may_wait]
            return Place(
                max(0.0, end_s - left_s), self._extra_s(ahead.extra_s), self._extra_s(cost_s), put_off
            )
        late_s = max((end + by_s - each.deadline for each, end in later if end <= each.deadline), default=0.0)
        return Place(max(self._room_delay_s(terms.client), late_s, end_s - left_s, 0.0))

    def _extra_s(self, cost_s: float) -> float:
        """Return the time that work of others adds to a time limit: as much as if it were its own."""
        return TIMEOUT_FACTOR * cost_s / self._rate()

    def _find_later(self, line: Line, ahead: "_Ahead", now: float) -> Iterator[tuple[QueuedRequest, float]]:
        """Yield the bulk requests that come after a new one, with their ends without it."""
        ahead_s, rate = ahead.work_s, self._bulk_rate() / CAUTION
        for request in line.requests():
            if request.tag > ahead.tag:
                ahead_s += request.waiting_s
                yield request, now + ahead_s / rate

    def _rate(self) -> float:
        """Return the core seconds of work, as counted in the lines, that are computed in a second."""
        return self.cores / self._pace.slowness

    def _interactive_rate(self) -> float:
        """Return the core seconds of interactive work that are computed in a second."""
        weight = self._config.batch.interactive_weight
        others = bool(self._bulk.jobs) + bool(self._background.jobs)
        return self.cores / self._pace.slowness * weight / (weight + others)

    def _bulk_rate(self) -> float:
        share = (1.0 - self._interactive_share) / (1 + bool(self._background.jobs))
        return self._rate() * max(share, LEAST_BULK_SHARE)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The work that goes before a new request with `tag`: `work_s` core seconds, of which `extra_s` do not
    count, because they are the work of one other client and the new request is that of a newcomer."""

    tag: float
    work_s: float
    extra_s: float
    is_newcomer: bool

    @property
    def counted_s(self) -> float:
        return self.work_s - self.extra_s


def _ahead_of(line: Line, terms: Terms, cost_s: float) -> _Ahead:
    tag = line.tag_for(terms.client, cost_s)
    by_client: dict[str | None, float] = {}
    for request in line.requests():
        if request.tag > tag:
            break
        by_client[request.terms.client] = by_client.get(request.terms.client, 0.0) + request.waiting_s
    is_newcomer = not line.waiting_s_of(terms.client)
    extra_s = max(by_client.values(), default=0.0) if is_newcomer and terms.may_wait else 0.0
    return _Ahead(tag, sum(by_client.values()), extra_s, is_newcomer)


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
