"""The scheduler of one engine: which requests are admitted, and what a free lane computes next. Pure.

It is one object over the queue (`queue`, `line`), the choice of batches (`policy`), and the predicted times
(`forecast`, `pace`). A request goes through `admit`, its texts through `take` and `finish`. It may end early
through `give_up_hopeless`, and through `cancel`, `expire` or `fail_all` of the queue.

Admission. The priority and the time limit of a request follow from its predicted time. A request is admitted
whole or not at all: if there is room for its texts, and if the forecast finds a place for it. A request whose
time limit seems too short even for an idle machine is refused, but tried now and then.

The number of cores of a call is one of the widths of the engine. The smallest width, mostly one core, is
narrow. If an idle lane finds all cores free and at most one batch waiting, it runs the batch on the largest
width. One text is one batch, whatever its length. So a single request uses the whole machine. Any other call
leaves at least half of the cores to others: of the widths within this limit, the call gets the one with which
the waiting work computes on the most cores, where a core of a wide call counts less. So a few clients use all
cores of a large machine, and under load all calls are narrow, and the cores work in parallel without waiting
for each other.

Long texts. A text that takes long (`is_long`) runs wide too, but takes one core less than it computes on. A
short text that arrives meanwhile finds this core free, and the operating system shares it between the two
calls. So a long text uses the whole machine, and no short text waits for its end. One core of the process is
always free of long texts, or only borrowed by them. Of the widths that fit, a long text gets the one with
which all waiting long texts compute on the most cores.

The file uses no clock (callers pass `now`), no thread and no event loop. Callers hold a lock around every
call, except around those that say otherwise.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from vecmill.batching.forecast import LONG_CALL_S, WIDE_SHARE, Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import OWN_WORK, Job, QueuedRequest, Terms
from vecmill.config import MillConfig
from vecmill.errors import DeadlineExceeded, QueueFull, RequestTooLarge, VecmillError
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence, ids_of
from vecmill.values.embeddings import Embedding
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import BatchTimeline, RunTimeline
from vecmill.values.waiting_work import WaitingWork

# Requests whose time limit seems too short for an idle machine are tried for at most this part of the time.
TRY_SHARE = 0.05

SHORTEST_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class Backlog:
    """The waiting work of a model, and its part of the time that all waiting texts take (`wait_time`)."""

    texts: int
    tokens: int
    seconds: float


def sum_backlogs(backlogs: Iterable[Backlog]) -> Backlog:
    """Return the sum of the work that waits in several queues."""
    texts, tokens, seconds = 0, 0, 0.0
    for each in backlogs:
        texts, tokens, seconds = texts + each.texts, tokens + each.tokens, seconds + each.seconds
    return Backlog(texts, tokens, seconds)


@dataclass(slots=True)
class Ask:
    """What a request asks for: its priority, on whose behalf it is, and its own time limit.

    The priority and the time limit follow from the predicted time of the request. `priority` can only make it
    less urgent, and `timeout_s` only shorten the limit, which counts from `accepted_at`, by default from the
    admission. `timeline` is where the times of the request are recorded.
    """

    priority: Priority | None = None
    client: str | None = None
    timeout_s: float | None = None
    accepted_at: float | None = None
    timeline: RunTimeline | None = None


@dataclass(slots=True)
class Cores:
    """The cores of the process, and the lanes of this engine, as a free lane finds them.

    `long_cores` is the number of cores that long texts of any model have taken. `lanes` is the number of
    lanes that work, `long_lanes` that of those which compute a long text.
    """

    free: int
    total: int
    long_cores: int
    lanes: int
    long_lanes: int


@dataclass(slots=True)
class SealedBatch:
    """Jobs that one lane computes in one call on `width` cores, of which it takes `cores` from the budget.

    `call_s` is the predicted core seconds of the call, `cost_s` the waiting work of its texts, `tokens` the
    number of tokens of the jobs. `is_own` tells whether it is work of the model for itself alone, which does
    not count as traffic. `waits_s` holds, for each text, the seconds from admission to now. `timeline` is
    `None` unless the times of batches are recorded.
    """

    jobs: list[Job]
    width: int
    cores: int
    has_long_text: bool
    call_s: float
    cost_s: float
    tokens: int
    waits_s: tuple[float, ...]
    is_own: bool = False
    timeline: BatchTimeline | None = None


class Scheduler:
    """The scheduler of one engine; see the module docstring."""

    def __init__(
        self, config: MillConfig, cost: CostModel, *, lanes: int, widths: Sequence[int] = (1,)
    ) -> None:
        """`widths` are the numbers of cores that a call may have, ascending.

        `cost` is the expected cost of calls on the first of them. Every call corrects it.
        """
        narrow, wide = widths[0], widths[-1]
        self.pace = Pace(cost, narrow=narrow, lanes=lanes)
        self.queue = Queue(config.queue, self.pace.text_cost_s)
        self.forecast = Forecast(
            self.queue, config, self.pace, cores=lanes * narrow, wide=max(1, wide // narrow)
        )
        self.policy = Policy(config.batch, self.forecast, self.pace)
        self._batch_size = self.policy.batch_size
        self._limits = config.queue
        self.core_weight = config.core_weight
        self._lanes = lanes
        self._widths = tuple(widths)
        self._narrow, self._wide = narrow, wide
        self._next_try_at: float | None = None  # when a request that seems too late may be tried

    @property
    def waiting_work(self) -> WaitingWork:
        """The waiting work."""
        # Read at the begin and the end of each engine call, with the lock that requests wait for.
        if not self.queue.waiting_texts:
            return WaitingWork(0.0, self.forecast.cores, self.pace.slowness)
        since = min([line.first().admitted_at for line in self.queue.lines.values() if line.jobs])
        return WaitingWork(self.forecast.cost_s, self.forecast.cores, self.pace.slowness, since)

    @property
    def batch_tokens(self) -> int:
        """The tokens of a full batch, as the measurements are now. May be read without the lock."""
        return self._batch_size.tokens

    @property
    def has_open_texts(self) -> bool:
        """Whether texts wait or run. May be read without the lock."""
        return self.queue.open_texts > 0

    # Admission.

    def make_refusal(self, room: Room, texts: int, tokens: int) -> VecmillError:
        """Return the error of so many texts and tokens that do not fit into the queue, now or never.

        May be called without the lock.
        """
        if room is Room.FULL:
            return queue_full(self.forecast.waiting_s)
        limits = self._limits
        return RequestTooLarge(
            f"The request has {texts} texts with {tokens} tokens; the queue never holds more than "
            f"{limits.max_queue_texts} texts (`max_queue_texts`) and {limits.max_queue_tokens} tokens "
            "(`max_queue_tokens`). Send it in parts."
        )

    def costs_s(self, tokens: Iterable[int]) -> list[float]:
        """Return the predicted core seconds of texts of so many tokens."""
        return list(map(self.pace.text_cost_s, tokens))

    def admit(self, sequences: Sequence[TokenSequence], ask: Ask, now: float) -> QueuedRequest:
        """Admit `sequences` together, at least one.

        Raises `RequestTooLarge`, `QueueFull` or `DeadlineExceeded` if the request is not admitted.
        """
        texts, tokens = len(sequences), sum(map(len, map(ids_of, sequences)))
        room = self.queue.room_for(texts, tokens, ask.client)
        if room is not Room.FITS:
            raise self.make_refusal(room, texts, tokens)
        costs_s = self.queue.costs_s(sequences)
        own_s = self.forecast.own_s(costs_s)
        terms = self._make_terms(own_s, ask, now)
        place = self.forecast.find_place(costs_s, terms, now)
        if place.delay_s > 0 and not terms.is_try:
            raise queue_full(place.delay_s)
        if place.extra_s:
            terms = replace(terms, deadline=terms.deadline + place.extra_s)
        request = self.queue.admit(sequences, terms, now, costs_s)
        if place.later:
            self.queue.put_off(place.later, place.others_s)
        return request

    # The computation.

    def may_take(self, cores: Cores) -> bool:
        """Return whether `take` would return a batch if a core were free."""
        return self.policy.has_work(self.queue, allow_long=self._may_run_long(cores))

    def take(
        self, cores: Cores, now: float, *, was_idle: bool, timeline_of: int | None = None
    ) -> SealedBatch | None:
        """Choose the next batch for a free lane that `was_idle`, and mark its jobs as running.

        Return `None` if nothing that waits may run now. At least a narrow call has to fit into the free
        cores. The times of the batch are recorded if `timeline_of` is given, the number of the lane.
        """
        if not self.queue.work_texts:
            return None
        width = taken = self._choose_width(cores, was_idle=was_idle)
        lanes = self._lanes if width == self._narrow else self._count_calls(width, cores)
        allow_long = self._may_run_long(cores)
        jobs = self.policy.choose(self.queue, lanes=lanes, now=now, allow_long=allow_long)
        if not jobs:
            return None
        cost_s = longest_s = 0.0
        tokens, waits_s = 0, []
        for job in jobs:
            cost_s += job.cost_s
            longest_s = max(longest_s, job.cost_s)
            tokens += job.tokens
            waits_s.append(now - job.arrived_at)
        has_long_text = longest_s > LONG_CALL_S
        if has_long_text:
            width, taken = self._choose_long_width(cores)
        timeline = None if timeline_of is None else _begin_timeline(jobs, timeline_of, width, tokens, now)
        self.queue.take(jobs, now, timeline)
        is_own = jobs[0].home.terms.client == OWN_WORK
        if is_own:
            is_own = all(job.home.terms.client == OWN_WORK for job in jobs)
        call_s = self.pace.core_s(cost_s)
        return SealedBatch(
            jobs, width, taken, has_long_text, call_s, cost_s, tokens, tuple(waits_s), is_own, timeline
        )

    def finish(
        self, jobs: Iterable[Job], outcomes: Iterable[Embedding | VecmillError], now: float
    ) -> list[QueuedRequest]:
        """Give each job its outcome, and return the requests that ended as a result."""
        ended: list[QueuedRequest] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            ended += self.queue.finish(job, outcome, now)
        for request in ended:
            if request.terms.is_try and request.error is None:  # the prediction is wrong
                self._next_try_at = now
        return ended

    def fail(self, jobs: Sequence[Job], error: VecmillError, now: float) -> list[QueuedRequest]:
        """Give all jobs this error, and return the requests that ended as a result."""
        return self.finish(jobs, [error] * len(jobs), now)

    def measure(self, lengths: Sequence[int], width: int, seconds: float) -> None:
        """Correct the predictions by a call over texts of these lengths that took `seconds`."""
        if width == self._narrow:
            self._batch_size.measure(lengths, seconds)
        self.pace.measure(lengths, width, seconds)

    def count_lanes(self, working: int) -> None:
        """Tell the forecast how many lanes work. Without a lane nothing is admitted anyway."""
        self.forecast.cores = max(1, working) * self._narrow

    # Requests that end early.

    def give_up_hopeless(self, now: float) -> list[QueuedRequest]:
        """End the bulk requests that have not begun and can no longer end in time, and return them."""
        hopeless = self.forecast.hopeless(now)
        return self.queue.give_up(hopeless, now) if hopeless else hopeless

    def _make_terms(self, own_s: float, ask: Ask, now: float) -> Terms:
        """Return the terms of a request that takes `own_s` on an idle machine.

        Raises `DeadlineExceeded` if even an idle machine could not meet its time limit.
        """
        priority = self.forecast.choose_priority(own_s, ask.priority)
        # Background work is worth computing however late.
        limit_s = math.inf if priority is Priority.BACKGROUND else self.forecast.time_limit_s(own_s)
        may_wait = ask.timeout_s is None or ask.timeout_s >= limit_s
        if ask.timeout_s is not None:
            limit_s = min(limit_s, ask.timeout_s)
        deadline = (now if ask.accepted_at is None else ask.accepted_at) + limit_s
        is_try = now + own_s > deadline
        if is_try and not self._may_try(deadline - now, now):
            left_s = max(0.0, deadline - now)
            raise DeadlineExceeded(
                f"The request takes about {own_s:.3g} s on this machine, and {left_s:.3g} s are left of its "
                f"{limit_s:.3g} s. Allow more time, or send fewer texts at a time."
            )
        return Terms(priority, deadline, ask.client, may_wait, is_try, ask.timeline, ask.accepted_at)

    def _may_try(self, left_s: float, now: float) -> bool:
        """Return whether a request may run that seems to take more time than the `left_s` of its time limit.

        Only calls correct a wrong prediction, so on an idle machine such a request is tried now and then.
        """
        if self._next_try_at is None:
            self._next_try_at = now + left_s / TRY_SHARE
        if left_s <= 0 or self.queue.open_texts or now < self._next_try_at:
            return False
        self._next_try_at = now + left_s / TRY_SHARE
        return True

    def _choose_width(self, cores: Cores, *, was_idle: bool) -> int:
        """Return the number of cores for the next call, if it has no long text."""
        is_alone = was_idle and cores.free == cores.total
        if is_alone and self._wide <= cores.free and self._is_one_batch():
            return self._wide
        most = min(cores.free, cores.total // 2)
        usable = [width for width in self._widths if width == self._narrow or width <= most]
        if len(usable) == 1:
            return self._narrow
        return max(usable, key=lambda width: (self._speed(width, cores), -width))

    def _speed(self, width: int, cores: Cores) -> float:
        """Return on how many cores the waiting work computes if all its calls have this width."""
        calls = self._count_calls(width, cores)
        if width == self._narrow:
            return calls * width
        tokens = self.queue.work_tokens // self.queue.work_texts
        return calls * width * min(WIDE_SHARE, self.pace.wide_share(width, tokens))

    def _count_calls(self, width: int, cores: Cores) -> int:
        """Return how many calls of this width the waiting work gives, of those that the free cores hold."""
        is_narrow = width == self._narrow
        batch_tokens = self.pace.least_batch_tokens if is_narrow else self._batch_size.tokens
        batches = min(self.queue.work_texts, -(-self.queue.work_tokens // batch_tokens))
        return max(1, min(batches, cores.free // width))

    def _choose_long_width(self, cores: Cores) -> tuple[int, int]:
        """Return the cores of a call with a long text, which is still in its line, and how many it takes."""
        waiting = self.policy.count_long(self.queue)
        least, most = self._narrow, min(cores.free, cores.total - self._narrow - cores.long_cores)
        wider = [(width, width - least) for width in self._widths if least < width <= least + most]
        # With one core that it takes and one that it borrows, a call is never narrow.
        usable = wider if any(taken == least for _, taken in wider) else [*wider, (least, least)]
        return max(usable, key=lambda each: (min(waiting, cores.free // each[1]) * each[1], -each[0]))

    def _may_run_long(self, cores: Cores) -> bool:
        """Return whether another lane, and a core, stay free of long calls if one more begins."""
        if cores.lanes == 1:
            return True
        most_cores = cores.total - self._narrow
        return cores.long_lanes < cores.lanes - 1 and cores.long_cores + self._narrow <= most_cores

    def _is_one_batch(self) -> bool:
        """Return whether no more waits than one call should compute."""
        if self.queue.work_tokens <= self._batch_size.tokens:
            return True
        lines = self.queue.lines.values()
        return self.queue.work_texts == 1 and not any(map(is_long, chain.from_iterable(lines)))


def queue_full(delay_s: float) -> QueueFull:
    """Return the error of a request that is refused for about `delay_s` seconds."""
    return QueueFull(
        "The model has as much waiting as it can answer in time. Try again later.",
        retry_after_s=max(delay_s, SHORTEST_RETRY_S),
    )


def _begin_timeline(jobs: list[Job], lane: int, width: int, tokens: int, now: float) -> BatchTimeline:
    return BatchTimeline(
        lane=lane,
        width=width,
        texts=len(jobs),
        tokens=tokens,
        taken_at=now,
        of_texts=tuple(job.timeline for job in jobs),
    )
