"""The tokenising of texts off the event loop: a few threads that take turns with the waiting requests.

How it works. The work of a request is a generator that stops before each piece of text (see
`tokenization.pieces`). A thread does pieces of one request for one slice, and then chooses again. So a large
request never holds a thread for long, and a request whose client has left, or whose deadline has passed,
stops at its next piece. Small requests are done at once on the event loop.

Counts. The tokens that truncation dropped are counted here too, by the thread for short pieces, in the turns
that no text of a waiting request needs. A count that finds no room is left out.

Threads. A piece may be long, if no rule says where its text may be split. One of the threads never begins
such a piece, so that there is always a thread for short pieces.

Room. Texts that wait are bounded in characters. One client may have `CLIENT_SHARE` of them waiting, beside a
first request of any size, so it cannot keep the others out.

Rules: `_condition` guards the turns and the sums. Futures are touched on the event loop only.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from vecmill.batching.queue import CLIENT_SHARE
from vecmill.batching.scheduler import SHORTEST_RETRY_S
from vecmill.config import InputConfig
from vecmill.errors import DeadlineExceeded, QueueFull, ShuttingDown, TokenizationFailed, mill_closed
from vecmill.operations.turns import LONG_PIECE, TextWork, Turns
from vecmill.tokenization.pieces import Slices, complete
from vecmill.values.clock import Clock
from vecmill.values.observer import Observer, Rejection

# Handing a text to another thread takes about as long as tokenising this many characters.
INLINE_CHARACTERS = 1_024
# Many small requests that arrive together must not add up to a pause either. These take 4 to 8 ms.
INLINE_CHARACTERS_PER_TURN = 16_384
# So many of them are read before the end of the turn is looked for. A turn usually reads one text, and a
# callback for each costs the event loop a turn of its own, while a lane wants the interpreter lock.
UNWATCHED_CHARACTERS = INLINE_CHARACTERS_PER_TURN // 4
# The fixed time of a text, as characters.
TEXT_CHARACTERS = 16

# So many requests of the largest size may wait to be tokenised: two of one client, and one of another.
LARGEST_REQUESTS = 3

THREADS = 2
# A slice takes about 5 ms.
SLICE_CHARACTERS = 16_384
# The threads' pace before the first measurement, in characters per second.
FIRST_PACE = 1_000_000.0
PACE_MEMORY = 0.9  # how much of the old pace a new measurement leaves

T = TypeVar("T")

# The result or the error of ended work.
_Ending = tuple[Any, BaseException | None]


@dataclass(frozen=True, slots=True)
class Load:
    """The size of a request's texts: how many, their `characters`, and how many of them will be read.

    `client` is on whose behalf; `None` is a client too.
    """

    texts: int
    characters: int
    read: int
    client: str | None = None

    @classmethod
    def of(cls, sizes: Sequence[int], most_read: int | None, client: str | None) -> "Load":
        """Return the load of texts of these sizes, of which at most `most_read` each are usually read."""
        characters = sum(sizes)
        read = characters if most_read is None else sum([min(size, most_read) for size in sizes])
        return cls(len(sizes), characters, read, client)

    @property
    def work(self) -> int:
        """The expected work, in characters."""
        return self.read + self.texts * TEXT_CHARACTERS


class TokenizerThreads:
    """The tokenising threads of one loaded model. Use from one event loop."""

    def __init__(self, most_characters: int, most_counted: int, *, observer: Observer, clock: Clock) -> None:
        """`most_characters` may wait, in all requests together, and `most_counted` to be counted."""
        self._most_characters = most_characters
        self._most_counted = most_counted
        self._observer = observer
        self._clock = clock
        self._condition = threading.Condition()
        self._turns = Turns()
        self._counts = Turns()  # that go after all others
        self._waiting_characters: Counter[str | None] = Counter()  # by client
        self._counted_characters: Counter[str | None] = Counter()  # by client
        self._pace = FIRST_PACE
        self._is_closing = False
        self._threads: list[threading.Thread] = []
        self._jobs: dict[TextWork, asyncio.Future[Any]] = {}
        self._inline_left = INLINE_CHARACTERS_PER_TURN
        self._watches_turn = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of(cls, limits: InputConfig, *, observer: Observer, clock: Clock) -> "TokenizerThreads":
        """Make the threads of a model whose requests keep these limits."""
        return cls(
            LARGEST_REQUESTS * limits.max_request_characters,
            LARGEST_REQUESTS * limits.max_counted_characters,
            observer=observer,
            clock=clock,
        )

    async def run(
        self, work: Slices[T], load: Load, deadline: float, check: Callable[[], None] | None = None
    ) -> T:
        """Do `work`, and return its result. `deadline` is a time of the clock.

        `check` is called before each slice, on any thread, and ends the work if it raises an error.

        Raises `QueueFull` if too much other work waits, `DeadlineExceeded`, `ShuttingDown`, and the errors of
        `work` and `check`. Cancelling the call ends the work before its next piece.
        """
        if self.may_run_inline(load.texts, load.read):
            return complete(work)
        return await self.run_in_turns(work, load, deadline, check)

    async def run_in_turns(
        self, work: Slices[T], load: Load, deadline: float, check: Callable[[], None] | None = None
    ) -> T:
        """Do `work` in the threads, as `run` does with work that may not run inline."""
        self._refuse_unless_room(load, deadline)
        job = TextWork(work, load.work, deadline)
        if check is not None:
            job.check = check
        loop, timer = asyncio.get_running_loop(), None
        if deadline != math.inf:
            timer = loop.call_later(max(0.0, deadline - self._clock()), self._expire, job)
        try:
            result: T = await self._wait(job, load, self._waiting_characters)
            return result
        finally:
            if timer is not None:
                timer.cancel()

    async def count(self, work: Slices[None], load: Load) -> None:
        """Do `work` in the turns that nothing else needs, or leave it out if too much of such work waits.

        A count that fails ends where it is, since the request needs nothing more of its text.

        Cancelling the call ends the work before its next piece.
        """
        with suppress(ShuttingDown, TokenizationFailed):
            await self._count(work, load)

    async def _count(self, work: Slices[None], load: Load) -> None:
        if self.may_run_inline(load.texts, load.read):
            complete(work)
            return
        counted, own = self._counted_characters.total(), self._counted_characters[load.client]
        is_full = counted + load.characters > self._most_counted
        is_full |= own + load.characters > CLIENT_SHARE * self._most_counted
        if self._is_closing or is_full:
            return
        job = TextWork(work, load.work, math.inf, is_count=True)
        await self._wait(job, load, self._counted_characters)

    async def _wait(self, job: TextWork, load: Load, characters: Counter[str | None]) -> Any:
        """Let the threads do `job`, and return its result. `characters` has the sums of such jobs."""
        self._loop = asyncio.get_running_loop()
        future = self._jobs[job] = self._loop.create_future()
        characters[load.client] += load.characters
        try:
            self._start(job)
            return await future
        finally:
            characters[load.client] -= load.characters
            if not characters[load.client]:
                del characters[load.client]
            del self._jobs[job]
            with self._condition:
                self._turns_of(job).drop(job)

    def _turns_of(self, job: TextWork) -> Turns:
        return self._counts if job.is_count else self._turns

    def close(self) -> None:
        """Fail all waiting work with `ShuttingDown`, and end the threads. May be called twice."""
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        for job in list(self._jobs):
            self._settle(job, None, mill_closed())

    # On the event loop.

    def may_run_inline(self, texts: int, characters: int) -> bool:
        """Return whether the caller may read so many texts itself, on the event loop, and count it if so.

        `characters` are those of all texts that will be read.
        """
        work = characters + texts * TEXT_CHARACTERS
        left = self._inline_left - work
        if work > INLINE_CHARACTERS or left < 0:
            return False
        self._inline_left = left
        if INLINE_CHARACTERS_PER_TURN - left > UNWATCHED_CHARACTERS and not self._watches_turn:
            self._watches_turn = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        return True

    def _end_turn(self) -> None:
        self._inline_left, self._watches_turn = INLINE_CHARACTERS_PER_TURN, False

    def _refuse_unless_room(self, load: Load, deadline: float) -> None:
        if self._is_closing:
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise mill_closed()
        with self._condition:
            ahead_s = self._turns.work_before(load.work) / self._pace
            all_s = self._turns.work / self._pace
        waiting, own = self._waiting_characters.total(), self._waiting_characters[load.client]
        excess = waiting + load.characters - self._most_characters
        if own:
            excess = max(excess, own + load.characters - int(CLIENT_SHARE * self._most_characters))
        if waiting and excess > 0:
            share = min(1.0, excess / waiting)
            raise self._full(
                "The model has as many texts to tokenise as it accepts. Try again later.", share * all_s
            )
        left_s = deadline - self._clock()
        if ahead_s > left_s:
            raise self._full(
                "Texts that wait to be tokenised take longer than this request may wait. Try again later, or "
                "allow more time.",
                ahead_s - left_s,
            )

    def _full(self, message: str, retry_after_s: float) -> QueueFull:
        self._observer.rejected(Rejection.QUEUE_FULL)
        return QueueFull(message, retry_after_s=max(SHORTEST_RETRY_S, retry_after_s))

    def _start(self, job: TextWork) -> None:
        with self._condition:
            self._turns_of(job).add(job, self._clock())
            self._condition.notify_all()
        while len(self._threads) < THREADS:
            takes_long = len(self._threads) == THREADS - 1
            thread = threading.Thread(
                target=self._work,
                args=(takes_long,),
                name=f"vecmill-tokenize-{len(self._threads)}",
                daemon=True,
            )
            thread.start()  # may raise; the next request then tries again
            self._threads.append(thread)

    def _expire(self, job: TextWork) -> None:
        error = DeadlineExceeded(
            "The time of the request was over before its texts were tokenised. Try again, or allow more time."
        )
        self._settle(job, None, error)

    def _settle(self, job: TextWork, result: Any, error: BaseException | None) -> None:
        future = self._jobs.get(job)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    # On a tokenising thread.

    def _work(self, takes_long: bool) -> None:
        while (job := self._next_job(takes_long)) is not None:
            began = self._clock()
            done, ending = self._do_slice(job, takes_long)
            with self._condition:
                self._measure_pace(done, self._clock() - began)
                turns = self._turns_of(job)
                turns.spend(job, done)
                if job.is_dropped:
                    job.work.close()
                elif ending is None:
                    turns.put_back(job, self._clock())
                    self._condition.notify_all()
            if ending is not None:
                self._tell(job, *ending)
            del job, ending  # they hold the texts and tokens of a request

    def _next_job(self, takes_long: bool) -> TextWork | None:
        with self._condition:
            while not self._is_closing:
                now = self._clock()
                job = self._turns.take(now, takes_long=takes_long)
                if job is None and not takes_long:
                    job = self._counts.take(now, takes_long=False)
                if job is not None:
                    return job
                self._condition.wait()
        return None

    def _do_slice(self, job: TextWork, takes_long: bool) -> tuple[int, _Ending | None]:
        """Do pieces for one slice.

        Returns the number of characters, and the result or the error if the work has ended.
        """
        done = 0
        try:
            job.check()
            while not job.is_dropped and _may_go_on(job, done, takes_long):
                done += 0 if job.announced is None else job.announced + TEXT_CHARACTERS
                job.announced = next(job.work)
        except StopIteration as end:
            return done, (end.value, None)
        except BaseException as error:  # whatever it is, the request gets it, and the thread goes on
            return done, (None, error)
        return done, None

    def _measure_pace(self, characters: int, elapsed_s: float) -> None:
        # The pace of very little work is mostly the fixed time of a turn.
        if characters > INLINE_CHARACTERS and elapsed_s > 0:
            self._pace += (1 - PACE_MEMORY) * (characters / elapsed_s - self._pace)

    def _tell(self, job: TextWork, result: Any, error: BaseException | None) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._settle, job, result, error)


def _may_go_on(job: TextWork, done: int, takes_long: bool) -> bool:
    if job.announced is None:
        return True
    if job.announced > LONG_PIECE and not takes_long:
        return False
    return not done or done + job.announced <= SLICE_CHARACTERS
