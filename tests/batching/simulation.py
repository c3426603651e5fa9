"""A simulated machine for the scheduler: a call takes the time that it costs."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from vecmill.batching.pace import PAIR_TOKENS
from vecmill.batching.policy import is_long
from vecmill.batching.scheduler import Ask, Cores, Scheduler
from vecmill.batching.ticket import Job, QueuedRequest
from vecmill.config import MillConfig, QueueConfig
from vecmill.errors import DeadlineExceeded, QueueFull
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel

ZEROS = np.zeros(2**16, np.int64)
ROW = np.ones((1, 2), np.float32)
PER_TOKEN_S = 2.5e-4  # about what MiniLM takes on one core in fp32


@cache
def zeros(length: int) -> np.ndarray:
    """Return the ids of a text; a run has a million texts, of a few hundred lengths."""
    return ZEROS[:length]


# The limits of a server, which has a time limit.
OF_SERVER = MillConfig(queue=QueueConfig(timeout_s=30.0))


@dataclass
class Machine:
    """Lanes of one core each, and a clock that jumps from event to event.

    `pace_error` is by how much calls take longer than the pace expects at first.
    """

    config: MillConfig = OF_SERVER
    lanes: int = 2
    per_token_s: float = PER_TOKEN_S
    fixed_s: float = 5e-4
    pace_error: float = 1.0
    now: float = 0.0
    computed: int = 0
    wasted: int = 0

    def __post_init__(self) -> None:
        expected = CostModel(self.fixed_s / self.pace_error, self.per_token_s / self.pace_error)
        self.scheduler = Scheduler(self.config, expected, lanes=self.lanes)
        self.pace, self.queue = self.scheduler.pace, self.scheduler.queue
        self.forecast = self.scheduler.forecast
        self.calls: list[tuple[float, int, list[Job]]] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.ended: dict[QueuedRequest, Callable[[QueuedRequest], None]] = {}

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at the time `when`."""
        self.number += 1
        heapq.heappush(self.events, (when, self.number, act))

    def ask(
        self,
        lengths: list[int],
        client: str | None = None,
        priority: Priority | None = None,
        then: Callable[[QueuedRequest], None] = lambda _: None,
        timeout_s: float | None = None,
    ) -> float:
        """Admit a request of texts that nobody else has, or return the seconds after which it may fit."""
        sequences = []
        for length in lengths:
            self.number += 1
            ids = zeros(length)
            sequences.append(TokenSequence(ids, ids, 0, b"%d" % self.number))
        ask = Ask(priority, client, timeout_s)
        try:
            self.ended[self.scheduler.admit(sequences, ask, self.now)] = then
        except QueueFull as error:
            return error.retry_after_s
        except DeadlineExceeded:
            return math.inf
        return 0.0

    def seconds_of(self, tokens: int) -> float:
        """Return the seconds that a text takes in a call."""
        return self.per_token_s * tokens * (1 + tokens / PAIR_TOKENS)

    def run(self, until_s: float) -> None:
        """Let time pass until `until_s`."""
        while True:
            self._begin_calls()
            times = [entry[0] for entry in (self.events[:1] + self.calls[:1])]
            if not times or min(times) > until_s:
                self.now = until_s
                return
            self.now = min(times)
            self._tell(self.scheduler.queue.expire(self.now))
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()
            while self.calls and self.calls[0][0] <= self.now:
                self._finish(heapq.heappop(self.calls)[2])

    def _begin_calls(self) -> None:
        while len(self.calls) < self.lanes and self.queue.work_texts:
            self._tell(self.scheduler.give_up_hopeless(self.now))
            batch = self.scheduler.take(self._cores(), self.now, was_idle=False)
            if batch is None:
                return
            seconds = self.fixed_s + sum(self.seconds_of(job.tokens) for job in batch.jobs)
            self.number += 1
            heapq.heappush(self.calls, (self.now + seconds, self.number, batch.jobs))
            self.pace.measure([job.tokens for job in batch.jobs], 1, seconds)

    def _cores(self) -> Cores:
        long_lanes = sum(any(map(is_long, jobs)) for _, _, jobs in self.calls)
        return Cores(self.lanes - len(self.calls), self.lanes, long_lanes, self.lanes, long_lanes)

    def _finish(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.computed += 1
            self.wasted += not job.tickets
            self._tell(self.scheduler.finish([job], [ROW], self.now))

    def _tell(self, requests: list[QueuedRequest]) -> None:
        for request in requests:
            self.wasted += sum(found is not None for found in request.embeddings) if request.error else 0
            self.ended.pop(request)(request)
