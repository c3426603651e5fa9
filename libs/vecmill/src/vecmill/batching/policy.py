"""Which waiting jobs make the next batch. Pure.

A lane that is free asks here. The anchor comes first: the oldest job of the share whose turn it
is. Its neighbours in token length, of the same share, fill the batch up to the token limit; they
keep the padded part of a batch small, which is bounded besides.

- **Turns** are start-time fair queueing: each share has a virtual time that advances by
  tokens / weight; the share that is behind goes next, and one that was idle starts level with the
  other instead of with a credit.
- **The age cap**: an interactive or bulk job older than it goes first whatever the turns say, but never
  do two batches of one share go so while another waits. So the wait of each text is bounded by the cap
  and about twice the batches of older ones, and a request of thousands of texts, all of which grow old
  together, keeps nobody waiting for more than a batch. Patient ones have their turns alone.
- **The limit** is what waits divided by the lanes that could run it, so that a request that has
  the machine to itself uses all of it, and between a floor (tiny batches waste the fixed cost of a
  call) and the configured maximum (large ones leave the cache and make everybody wait).

Sources: Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996.
"""

from vecmill.batching.line import Line
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Job, Share
from vecmill.config import BatchConfig

# Below this the fixed cost of a call is more than 3% of it, on the processors measured.
MIN_BATCH_TOKENS = 192

# A batch's texts times its longest text may be this many times the limit: attention pads, and a long
# text among many short ones would cost more there, in time and memory, than a call of its own.
MAX_PADDED = 2


class Policy:
    """Chooses batches, and remembers how much each share has had."""

    def __init__(self, config: BatchConfig) -> None:
        self._config = config
        self._weights = {**dict.fromkeys(Share, 1), Share.INTERACTIVE: config.interactive_weight}
        self._virtual_times = dict.fromkeys(Share, 0.0)
        self._last: Share | None = None

    def choose(self, queue: Queue, *, lanes: int, now: float) -> list[Job]:
        """The jobs of the next batch, anchor first; at least one.

        `queue` must not be empty. `lanes` is how many lanes could share the waiting work.
        """
        share = self._next_share(queue, now)
        line = queue.lines[share]
        jobs = self._gather(line, self._limit(line, lanes))
        self._charge(share, sum(job.tokens for job in jobs), queue)
        self._last = share
        return jobs

    def _next_share(self, queue: Queue, now: float) -> Share:
        present = [share for share in Share if queue.lines[share]]
        turn = min(present, key=lambda share: self._virtual_times[share])
        if turn is Share.PATIENT:
            return turn
        arrivals = {share: queue.lines[share].oldest().arrived_at for share in present}
        overdue = [
            share
            for share, arrived_at in arrivals.items()
            if share not in (Share.PATIENT, self._last) and now - arrived_at >= self._config.age_cap_s
        ]
        return min(overdue, key=arrivals.__getitem__, default=turn)

    def _limit(self, line: Line, lanes: int) -> int:
        fair_part = -(-line.tokens // lanes)
        return min(max(fair_part, MIN_BATCH_TOKENS), self._config.batch_tokens)

    def _gather(self, line: Line, limit: int) -> list[Job]:
        anchor = line.oldest()
        jobs, tokens, longest = [anchor], anchor.tokens, anchor.tokens
        for job in line.near(anchor.tokens):
            if job is anchor:
                continue
            longest = max(longest, job.tokens)
            if tokens + job.tokens > limit or (len(jobs) + 1) * longest > MAX_PADDED * limit:
                break
            jobs.append(job)
            tokens += job.tokens
        return jobs

    def _charge(self, share: Share, tokens: int, queue: Queue) -> None:
        self._virtual_times[share] += tokens / self._weights[share]
        for other in Share:
            # A share with nothing waiting collects no credit.
            if not queue.lines[other]:
                self._virtual_times[other] = max(self._virtual_times[other], self._virtual_times[share])
