"""A simulated machine for the queue, the forecast and the policy: a call takes the time that it costs."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import PAIR_TOKENS, Pace
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import Job, QueuedRequest, Terms
from vecmill.config import MillConfig
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_info import CostModel

ZEROS = np.zeros(2**16, np.int64)
ROW = np.ones((1, 2), np.float32)
PER_TOKEN_S = 2.5e-4  # about what MiniLM takes on one core in fp32


@dataclass
class Machine:
    """Lanes of one core each, and a clock that jumps from event to event.

    `pace_error` is by how much calls take longer than the pace expects at first.
    """

    config: MillConfig = field(default_factory=MillConfig)
    lanes: int = 2
    per_token_s: float = PER_TOKEN_S
    fixed_s: float = 5e-4
    pace_error: float = 1.0
    now: float = 0.0
    computed: int = 0
    wasted: int = 0

    def __post_init__(self) -> None:
        expected = CostModel(self.fixed_s / self.pace_error, self.per_token_s / self.pace_error)
        self.pace = Pace(expected, narrow=1, lanes=self.lanes)
        self.queue = Queue(self.config.queue, self.pace.text_cost_s)
        self.forecast = Forecast(self.queue, self.config, self.pace, cores=self.lanes)
        self.policy = Policy(self.config.batch, self.forecast, self.pace)
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
        """Admit a request of texts that nobody else has, or return the seconds after which it may fit.

        It is what `Dispatcher.submit` does, on the clock of the machine.
        """
        sequences = []
        for length in lengths:
            self.number += 1
            key = b"%d" % self.number
            sequences.append(TokenSequence(ZEROS[:length], ZEROS[:length], 0, key))
        costs_s = self.queue.costs_s(sequences)
        own_s = self.forecast.own_s(costs_s)
        limit_s = self.forecast.time_limit_s(own_s)
        may_wait = timeout_s is None or timeout_s >= limit_s
        terms = Terms(
            self.forecast.choose_priority(own_s, priority),
            self.now + (limit_s if may_wait or timeout_s is None else timeout_s),
            client,
            may_wait,
        )
        if self.queue.room_for(len(lengths), sum(lengths), client) is not Room.FITS:
            return self.forecast.waiting_s
        place = self.forecast.find_place(costs_s, terms, self.now)
        if place.delay_s <= 0:
            terms = replace(terms, deadline=terms.deadline + place.extra_s)
            self.ended[self.queue.admit(sequences, terms, self.now, costs_s)] = then
            self.queue.put_off(place.later, place.others_s)
        return place.delay_s

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
            self._tell(self.queue.expire(self.now))
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()
            while self.calls and self.calls[0][0] <= self.now:
                self._finish(heapq.heappop(self.calls)[2])

    def _begin_calls(self) -> None:
        while len(self.calls) < self.lanes and not self.queue.is_empty:
            self._tell(self.queue.give_up(self.forecast.hopeless(self.now), self.now))
            long_calls = sum(any(map(is_long, jobs)) for _, _, jobs in self.calls)
            jobs = self.policy.choose(
                self.queue,
                lanes=self.lanes,
                now=self.now,
                allow_long=self.lanes == 1 or long_calls < self.lanes - 1,
            )
            if not jobs:
                return
            self.queue.take(jobs, self.now)
            seconds = self.fixed_s + sum(self.seconds_of(job.tokens) for job in jobs)
            self.number += 1
            heapq.heappush(self.calls, (self.now + seconds, self.number, jobs))
            self.pace.measure([job.tokens for job in jobs], 1, seconds)

    def _finish(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.computed += 1
            self.wasted += not job.tickets
            self._tell(self.queue.finish(job, ROW, self.now))

    def _tell(self, requests: list[QueuedRequest]) -> None:
        for request in requests:
            self.wasted += sum(found is not None for found in request.embeddings) if request.error else 0
            self.ended.pop(request)(request)
