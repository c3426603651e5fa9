"""The policy that chooses the jobs of the next batch. Pure.

A free lane asks the policy for a batch. The priority whose turn it is gives the batch, and the first request
of its line begins it: with its longest text, the anchor, and the next shorter texts of the same request.
Texts of other requests of the line, closest to the anchor in length, fill what is left of the token limit.
Similar lengths keep the padding of a batch small, and the padding has a fixed limit too.

- **Turns** are start-time fair queueing: each priority has a virtual time that advances by core seconds /
  weight. The priority with the lowest virtual time goes next. A priority that was idle starts at the virtual
  time of the others, without a credit.
- **Deadlines**: while a bulk request would become late, the bulk priority gets every other batch. The
  forecast admits bulk requests on this condition.
- **The limit** is the waiting tokens divided by the lanes that could run them, so that a request that has the
  machine to itself uses all of it. The limit lies between a minimum (tiny batches waste the fixed cost of a
  call) and the size of full batches (`pace`). While interactive requests come in, other calls are
  shorter, because a text that arrives waits for the call that runs.
- **Shared prefixes** of the texts of a request, in causal models, count once in a batch (`prefixes`).
- **Long texts**: a text that alone takes longer than `LONG_CALL_S` is computed only if another lane stays
  free of such texts, so that short texts never wait for it (`scheduler` has the widths of these calls).

Sources: Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996; `line` has the order of requests.
"""

from collections.abc import Callable, Iterator
from itertools import chain, filterfalse
from operator import attrgetter

from vecmill.batching.forecast import LONG_CALL_S, Forecast
from vecmill.batching.line import Line
from vecmill.batching.pace import BatchSize, Pace
from vecmill.batching.prefixes import added_tokens, extend_limit, most_slots
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Job
from vecmill.config import BatchConfig
from vecmill.requests import Priority

# A batch's texts times its longest text may be this many times the limit: attention pads, and a long
# text among many short ones would cost more there, in time and memory, than a call of its own.
MAX_PADDED = 2

# A call of bulk or background work takes about this long on one core while interactive requests come in,
# and never has fewer tokens than this.
SHORT_CALL_S = 0.025
MIN_SHORT_CALL_TOKENS = 64

# Interactive requests count as coming in for this long after the last one was computed.
INTERACTIVE_PAUSE_S = 1.0


class Policy:
    """The choice of batches, with a count of the work that each priority has received."""

    def __init__(self, config: BatchConfig, forecast: Forecast, pace: Pace) -> None:
        self.batch_size = BatchSize(config.max_batch_tokens, pace)
        self._pace = pace
        self._forecast = forecast
        self._weights = {**dict.fromkeys(Priority, 1), Priority.INTERACTIVE: config.interactive_weight}
        self._virtual_times = dict.fromkeys(Priority, 0.0)
        self._last: Priority | None = None
        self._interactive_at = float("-inf")

    def choose(self, queue: Queue, *, lanes: int, now: float, allow_long: bool = True) -> list[Job]:
        """Choose the jobs of the next batch; the anchor is the first.

        `lanes` is the number of lanes that could run the waiting work. Without `allow_long`, long texts stay
        in their lines, and the batch is empty if nothing else waits. It is never empty for another reason.
        """
        present = _list_present(queue, allow_long=allow_long)
        if not present:
            return []
        priority = self._next_priority(present, now)
        line = queue.lines[priority]
        jobs = self._gather(line, self._limit(line, priority, lanes, now), lanes, allow_long=allow_long)
        self._charge(priority, sum(map(_cost_of, jobs)), queue)
        self._last = priority
        if priority is Priority.INTERACTIVE:
            self._interactive_at = now
        return jobs

    def has_work(self, queue: Queue, *, allow_long: bool) -> bool:
        """Return whether `choose` would return a batch."""
        return bool(_list_present(queue, allow_long=allow_long))

    def count_long(self, queue: Queue) -> int:
        """Return the number of long texts that wait."""
        return sum([line.count_longest(is_long) for line in queue.lines.values()])

    def _next_priority(self, present: list[Priority], now: float) -> Priority:
        if len(present) == 1:
            return present[0]
        waits_in_vain = Priority.BULK in present and self._last is not Priority.BULK
        if waits_in_vain and self._forecast.may_be_late(now):
            return Priority.BULK
        return min(present, key=self._virtual_times.__getitem__)

    def _limit(self, line: Line, priority: Priority, lanes: int, now: float) -> int:
        fair_part = -(-line.tokens // lanes)
        limit = min(max(fair_part, self._pace.least_batch_tokens), self.batch_size.next_tokens(fair_part))
        if priority is Priority.INTERACTIVE or now - self._interactive_at > INTERACTIVE_PAUSE_S:
            return limit
        tokens_per_s = line.tokens / line.waiting_s if line.waiting_s else float("inf")
        return int(min(limit, max(SHORT_CALL_S * tokens_per_s, MIN_SHORT_CALL_TOKENS)))

    def _gather(self, line: Line, limit: int, lanes: int, *, allow_long: bool) -> list[Job]:
        if line.jobs == 1:
            return [line.shortest()]
        candidates = _candidates(line, allow_long=allow_long)
        anchor = next(candidates)
        shared = anchor.sequence.shared
        slots = most_slots(limit, anchor)
        limit = extend_limit(limit, anchor, lanes)
        jobs, tokens, longest = {anchor: None}, anchor.tokens, anchor.tokens - shared
        for job in candidates:
            if job in jobs:
                continue
            added = added_tokens(anchor, job) if shared else job.tokens
            longest = max(longest, added)
            if tokens + added > limit or (len(jobs) + 1) * longest > MAX_PADDED * limit:
                break
            if (len(jobs) + 1) * anchor.tokens > slots:
                break
            jobs[job] = None
            tokens += added
        return list(jobs)

    def _charge(self, priority: Priority, cost_s: float, queue: Queue) -> None:
        self._forecast.count(priority, cost_s)
        times = self._virtual_times
        times[priority] += cost_s / self._weights[priority]
        for other, line in queue.lines.items():
            if not line.jobs and times[other] < times[priority]:  # with nothing waiting it collects no credit
                times[other] = times[priority]


_cost_of: Callable[[Job], float] = attrgetter("cost_s")


def is_long(job: Job) -> bool:
    """Return whether a call with this text alone takes so long that it must not take the last lane."""
    return job.cost_s > LONG_CALL_S


def _list_present(queue: Queue, *, allow_long: bool) -> list[Priority]:
    present = []
    for priority, line in queue.lines.items():
        if line.jobs and (allow_long or not is_long(line.shortest())):
            present.append(priority)
    return present


def _candidates(line: Line, *, allow_long: bool) -> Iterator[Job]:
    """Iterate over the texts for a batch: of the first request, the longest first, then of others by length.

    Without `allow_long`, long texts and requests that have nothing else are passed over.
    """
    for request in line.requests():
        own = iter(request.waiting) if allow_long else filterfalse(is_long, request.waiting)
        anchor = next(own, None)
        if anchor is not None:
            near = line.near(anchor.tokens)
            return chain((anchor,), own, near if allow_long else filterfalse(is_long, near))
    return iter(())
