"""The watch over the lanes: calls that hang, lanes that are lost, and how they come back.

A call hangs if it takes longer than `hang_s` and longer than `HANG_FACTOR` times its predicted time. Before
the first long text of a model was measured, calls took up to 9 times their predicted time on busy cores. Time
in which the process stood still does not count (`RunningClock`).

A lane is lost if its call hangs or its device is lost. Its texts fail with `LaneLost`, and its cores return
to the budget at once: most hung calls wait for something and do not compute, and a wide call would keep all
cores from the other lanes. A lane whose call hangs comes back in one of two ways:

- Its call returns. The outcome is dropped, since the texts have their answers.
- A new thread takes its place: at once if no other lane works, else when the call has taken twice its limit.
  The engine makes new sessions first, because calls of one session can block each other. The old thread ends
  when its call returns. At most `MAX_STUCK` threads for each lane are replaced before their calls return.

A lane whose device is lost does not come back. While no lane works and none may be replaced, `is_lost` is
true: all waiting texts fail, no request is admitted, and the process should be replaced.

The lock of the core budget guards the lanes.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from vecmill.batching.change import Change, tell
from vecmill.batching.scheduler import Scheduler
from vecmill.batching.ticket import Job, QueuedRequest
from vecmill.errors import LaneLost, workers_lost
from vecmill.hardware.budget import CoreBudget, TakenCores
from vecmill.values.clock import Clock, RunningClock
from vecmill.values.observer import LaneState

logger = logging.getLogger(__name__)

HANG_FACTOR = 10.0

# A call that shares its cores with another one may take this many times as long.
SHARED_FACTOR = 4.0

# A hung lane is replaced when its call has taken this many times the limit.
REPLACE_FACTOR = 2.0

# So many threads for each lane may have been replaced without the return of their calls. Each may keep a core
# busy, and keeps its session in memory.
MAX_STUCK = 3

LOST = frozenset({LaneState.HUNG, LaneState.DEAD})


@dataclass(slots=True)
class EngineCall:
    """A call of the engine: `began_at` on the running clock, the tokens of each text, and its cores.

    `predicted_s` is the time that the call was expected to take. `overlaps` is the count of the core budget
    when it began, -1 if it shared its cores from the beginning. `stood_still_s` is the time that the running
    clock had left out. A call without texts makes new sessions.
    """

    began_at: float
    lengths: Sequence[int] = ()
    width: int = 0
    predicted_s: float = 0.0
    overlaps: int = 0
    stood_still_s: float = 0.0

    def limit_s(self, hang_s: float, *, is_shared: bool = False) -> float:
        """Return the seconds after which the call hangs, at least `hang_s`."""
        predicted_s = self.predicted_s * (SHARED_FACTOR if is_shared else 1.0)
        return max(hang_s, HANG_FACTOR * predicted_s)

    def describe(self, now: float) -> str:
        """Return the size, the elapsed time and the predicted time of the call, for the log."""
        what = f"{len(self.lengths)} texts with {sum(self.lengths)} tokens on {self.width} cores"
        return (
            f"{what if self.lengths else 'making new sessions'}: {now - self.began_at:.1f} s elapsed, "
            f"{self.predicted_s:.1f} s predicted"
        )


@dataclass(eq=False, slots=True)
class Lane:
    """One worker thread and its state. Guarded by the lock.

    `called_at` is the time when the lane took its batch, `taken` the cores that it took for it. `call` is the
    latest engine call for the batch, also after the lane was given up.
    """

    number: int
    state: LaneState = LaneState.IDLE
    jobs: Sequence[Job] = ()
    taken: TakenCores | None = None
    called_at: float = 0.0
    call: EngineCall | None = None
    thread: threading.Thread | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the lane hangs or is dead."""
        return self.state in LOST

    def release(self, budget: CoreBudget, state: LaneState) -> None:
        """Forget the batch, and give the cores back."""
        taken = self.taken
        # First, because the budget asks which lanes could use the cores.
        self.state, self.jobs, self.taken = state, (), None
        if taken is not None:
            budget.give_back(taken)


class Renewal:
    """New sessions of an engine, made once for all lanes that are replaced together.

    `renew` is the engine's method.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._lock = threading.Lock()
        self._is_done = False

    def __call__(self) -> None:
        """Make the sessions, unless another thread has made them."""
        with self._lock:
            if not self._is_done:
                self._renew()
                self._is_done = True


# Starts the thread of a lane, which first makes new sessions if there is a renewal.
StartThread = Callable[[Lane, Renewal | None], None]


class LaneWatch:
    """The watch over `lanes`, whose items it replaces; see the module docstring."""

    def __init__(
        self,
        lanes: list[Lane],
        scheduler: Scheduler,
        change: Change,
        *,
        clock: Clock,
        hang_s: float,
        renew: Callable[[], None],
        start_thread: StartThread,
    ) -> None:
        """`renew` is the engine's method.

        `running_clock` leaves out the time in which the process stood still. It needs the lock.
        """
        self.is_lost = False  # no lane works, and none may be replaced
        self.is_closing = False
        self._lanes = lanes
        self._first = lanes[0].number
        self._scheduler = scheduler
        self._change = change
        self._budget = change.budget
        self._observer = change.observer
        self._clock = clock
        self.running_clock = RunningClock(clock)
        self._hang_s = hang_s
        self._renew = renew
        self._start_thread = start_thread
        self._stuck: set[Lane] = set()  # replaced lanes whose calls have not returned
        self._notes: deque[str] = deque()  # for the log, when the lock is released
        self._order = threading.Lock()  # of the reports

    @property
    def need_ticks(self) -> bool:
        """Whether a call runs that may hang, or a lost lane may be replaced later."""
        return any(
            lane.state is LaneState.BUSY or (lane.is_lost and self._may_replace(lane)) for lane in self._lanes
        )

    def expect_tick(self, due_at: float) -> None:
        """Set the time when `tick` will be called next, on the clock of the lanes."""
        with self._budget.lock:
            self.running_clock.expect_tick(due_at)

    def tick(self) -> list[QueuedRequest]:
        """Give up lanes that hang, replace lost lanes, and return the requests that ended as a result."""
        with self._change:
            if stood_still_s := self.running_clock.tick():
                self._notes.append(f"The process stood still for {stood_still_s:.1f} s.")
            ended = []
            for lane in self._lanes:
                if lane.state is LaneState.BUSY and self._exceeds_limit(lane):
                    ended += self._lose(lane, LaneState.HUNG)
            ended += self._recover()
        self._publish()
        return ended

    def report(self, number: int) -> None:
        """Report the state of a lane. Whichever threads report, the last report is the current state.

        Call without the lock of the budget.
        """
        with self._order:
            tell(self._observer.lane, number, self._lanes[number - self._first].state)

    # Calls, on a lane's thread.

    def begin_call(self, lane: Lane, lengths: Sequence[int], width: int) -> EngineCall:
        """Return the call that begins now over texts of these lengths.

        Raises `LaneLost` if the lane was given up.
        """
        with self._budget.lock:
            if lane.is_lost:
                raise LaneLost("The lane was given up.")
            overlaps = -1 if self._budget.is_shared else self._budget.overlaps
            predicted_s = self._scheduler.pace.call_s(lengths, width)
            began_at, stood_still_s = self.running_clock.read()
            lane.call = EngineCall(began_at, lengths, width, predicted_s, overlaps, stood_still_s)
            return lane.call

    def end_call(self, call: EngineCall) -> None:
        """Correct the predictions by a call that returned.

        Calls that shared their cores, or during which the process stood still, say nothing.
        """
        with self._budget.lock:
            now, stood_still_s = self.running_clock.read()
            # Another call that has computed on a core of this one would have raised the count.
            if stood_still_s == call.stood_still_s and call.overlaps == self._budget.overlaps:
                self._scheduler.measure(call.lengths, call.width, now - call.began_at)

    def take_back(self, lane: Lane) -> bool:
        """Make a lane that was given up, or has made new sessions, work again.

        Return false if another lane has replaced it. Then its thread ends.
        """
        with self._change:
            self._stuck.discard(lane)
            is_current = self._lanes[lane.number - self._first] is lane
            if lane.is_lost:
                end = "works again" if is_current else "was replaced, and its thread ends"
                self._notes.append(
                    f"Lane {lane.number} {end}: its call has returned{self._describe_call(lane)}."
                )
            if is_current:
                lane.state, lane.call, self.is_lost = LaneState.IDLE, None, False
                self._count_lanes()
        self._publish()
        self.report(lane.number)
        return is_current

    def bury(self, lane: Lane, error: BaseException) -> list[QueuedRequest]:
        """Note that the thread of `lane` ends with `error`, and return the requests that ended."""
        with self._change:
            self._stuck.discard(lane)
            ended = []
            if self._lanes[lane.number - self._first] is lane:
                ended = self._lose(lane, LaneState.DEAD) + self._recover()
        self._publish()
        logger.critical("lane %d ends", lane.number, exc_info=error)
        return ended

    # Lock held.

    def _exceeds_limit(self, lane: Lane, times: float = 1.0) -> bool:
        """Return whether the call of `lane` has taken more than so many times its limit."""
        if lane.call is None:
            return False
        elapsed_s = self.running_clock() - lane.call.began_at
        has_shared = lane.call.overlaps != self._budget.overlaps
        return elapsed_s > times * lane.call.limit_s(self._hang_s, is_shared=has_shared)

    def _describe_call(self, lane: Lane) -> str:
        return "" if lane.call is None else f" ({lane.call.describe(self.running_clock())})"

    def _lose(self, lane: Lane, state: LaneState) -> list[QueuedRequest]:
        """Give up `lane` and fail its texts. Call `_recover` before the lock is released."""
        error = LaneLost("The worker that computed this text is lost. Try again.")
        ended = self._scheduler.fail(lane.jobs, error, self._clock())
        self._notes.append(
            f"Lane {lane.number} is {state}{self._describe_call(lane)}. Its {len(lane.jobs)} texts fail."
        )
        lane.release(self._budget, state)
        return ended

    def _recover(self) -> list[QueuedRequest]:
        """Replace lost lanes that are due. If no lane works then, fail all waiting texts."""
        renewal = Renewal(self._renew)
        for lane in tuple(self._lanes):
            works = any(not other.is_lost for other in self._lanes)
            is_due = not works or self._exceeds_limit(lane, REPLACE_FACTOR)
            if is_due and self._may_replace(lane):
                self._replace(lane, renewal)
        self.is_lost = all(lane.is_lost for lane in self._lanes)
        self._count_lanes()
        if not self.is_lost:
            return []
        error = workers_lost()
        return self._scheduler.queue.fail_all(error, self._clock())

    def _count_lanes(self) -> None:
        self._scheduler.count_lanes(sum(not lane.is_lost for lane in self._lanes))

    def _may_replace(self, lane: Lane) -> bool:
        has_room = len(self._stuck) < MAX_STUCK * len(self._lanes)
        return lane.state is LaneState.HUNG and has_room and not self.is_closing

    def _replace(self, lane: Lane, renewal: Renewal) -> None:
        call = EngineCall(self.running_clock())
        successor = Lane(lane.number, LaneState.BUSY, call=call)
        try:
            self._start_thread(successor, renewal)
        except (RuntimeError, MemoryError) as error:
            self._notes.append(f"Lane {lane.number} cannot be replaced now: {error}.")
            return
        self._lanes[lane.number - self._first] = successor
        self._stuck.add(lane)
        self._notes.append(f"Lane {lane.number} is replaced by a new thread{self._describe_call(lane)}.")

    def _publish(self) -> None:
        """Log the notes. If there are any, report the states of all lanes. Call without the lock."""
        has_changes = bool(self._notes)
        while self._notes:
            with suppress(IndexError):  # another thread was faster
                logger.warning(self._notes.popleft())
        for lane in tuple(self._lanes) if has_changes else ():
            self.report(lane.number)
