"""The policy that chooses the jobs of the next batch. Pure.

A free lane asks the policy for a batch. The first job of the batch is the anchor: the oldest job of the
priority whose turn it is. Jobs of the same priority with token lengths closest to the anchor fill the batch
up to the token limit. Similar lengths keep the padding of a batch small, and the padding has a fixed limit
too.

- **Turns** are start-time fair queueing: each priority has a virtual time that advances by tokens / weight.
  The priority with the lowest virtual time goes next. A priority that was idle starts at the virtual time of
  the others, without a credit.
- **The age cap**: an interactive or bulk job older than the cap goes first regardless of turns. But two
  batches in a row never go first in this way for one priority while another priority waits. So the wait of
  each text is bounded by the cap plus about twice the time of the batches of older texts. A request of
  thousands of texts, which all reach the cap together, delays other priorities by at most one batch. The age
  cap does not apply to background jobs.
- **The limit** is the waiting tokens divided by the lanes that could run them, so that a request that has the
  machine to itself uses all of it. The limit lies between a minimum (tiny batches waste the fixed cost of a
  call) and the configured maximum (large batches do not fit into the processor cache and make other requests
  wait).

Sources: Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996.
"""

from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Job
from vecmill.batching.wait_list import WaitList
from vecmill.config import BatchConfig
from vecmill.requests import Priority

# Below this the fixed cost of a call is more than 3% of it, on the processors measured.
MIN_BATCH_TOKENS = 192

# A batch's texts times its longest text may be this many times the limit: attention pads, and a long
# text among many short ones would cost more there, in time and memory, than a call of its own.
MAX_PADDED = 2


class Policy:
    """The choice of batches, with a count of the work that each priority has received."""

    def __init__(self, config: BatchConfig) -> None:
        self._config = config
        self._weights = {**dict.fromkeys(Priority, 1), Priority.INTERACTIVE: config.interactive_weight}
        self._virtual_times = dict.fromkeys(Priority, 0.0)
        self._last: Priority | None = None

    def choose(self, queue: Queue, *, lanes: int, now: float) -> list[Job]:
        """Choose the jobs of the next batch, at least one; the anchor is the first.

        `queue` must not be empty. `lanes` is the number of lanes that could run the waiting work.
        """
        priority = self._next_priority(queue, now)
        wait_list = queue.wait_lists[priority]
        jobs = self._gather(wait_list, self._limit(wait_list, lanes))
        self._charge(priority, sum(job.tokens for job in jobs), queue)
        self._last = priority
        return jobs

    def _next_priority(self, queue: Queue, now: float) -> Priority:
        present = [priority for priority in Priority if queue.wait_lists[priority]]
        turn = min(present, key=lambda priority: self._virtual_times[priority])
        if turn is Priority.BACKGROUND:
            return turn
        arrivals = {priority: queue.wait_lists[priority].oldest().arrived_at for priority in present}
        overdue = [
            priority
            for priority, arrived_at in arrivals.items()
            if priority not in (Priority.BACKGROUND, self._last)
            and now - arrived_at >= self._config.age_cap_s
        ]
        return min(overdue, key=arrivals.__getitem__, default=turn)

    def _limit(self, wait_list: WaitList, lanes: int) -> int:
        fair_part = -(-wait_list.tokens // lanes)
        return min(max(fair_part, MIN_BATCH_TOKENS), self._config.batch_tokens)

    def _gather(self, wait_list: WaitList, limit: int) -> list[Job]:
        anchor = wait_list.oldest()
        jobs, tokens, longest = [anchor], anchor.tokens, anchor.tokens
        for job in wait_list.near(anchor.tokens):
            if job is anchor:
                continue
            longest = max(longest, job.tokens)
            if tokens + job.tokens > limit or (len(jobs) + 1) * longest > MAX_PADDED * limit:
                break
            jobs.append(job)
            tokens += job.tokens
        return jobs

    def _charge(self, priority: Priority, tokens: int, queue: Queue) -> None:
        self._virtual_times[priority] += tokens / self._weights[priority]
        for other in Priority:
            # A priority with nothing waiting collects no credit.
            if not queue.wait_lists[other]:
                self._virtual_times[other] = max(self._virtual_times[other], self._virtual_times[priority])
