"""The order in which waiting work on texts gets its turns. Uses no clock, thread or event loop.

The shortest work goes first: work of about the same size in the order of deadlines, then of arrival. So that
long work goes on under a stream of short work, at most every second turn goes to the work that has waited
longest for a turn, if it has waited `AGE_S`.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vecmill.tokenization.pieces import Slices

# Work that got no turn for this time takes turns with shorter work.
AGE_S = 0.1
# Nothing can interrupt a piece, and this one takes about 50 ms. Only threads for long pieces take longer
# ones.
LONG_PIECE = 65_536

_SIZES = 64  # more than the bits of any number of characters
_FEW = 64  # entries that a line may hold before it looks for those of jobs that no longer wait


def _nothing() -> None:
    """Check nothing."""


@dataclass(eq=False, slots=True)
class TextWork:
    """Work on the texts of one request. `left` is the expected rest of the work, in characters.

    `announced` is the number of characters of the next piece, `None` before the first piece is known.
    `place` is a number of its own for each wait for a turn, 0 while the work does not wait. `is_dropped`
    ends the work. Work that `is_count` reads what no model reads. `check` raises the error of a request that
    is not wanted any more.
    """

    work: Slices[Any]
    left: int
    deadline: float
    announced: int | None = None
    size: int = 0
    place: int = 0
    since: float = 0.0
    is_dropped: bool = False
    is_count: bool = False
    check: Callable[[], None] = _nothing


class Turns:
    """The waiting jobs."""

    def __init__(self) -> None:
        self._short, self._long = _Line(), _Line()
        self._places = 0
        self._left = [0] * _SIZES  # the rest of all jobs, running or waiting, by the bits of their first size
        self._was_oldest = False  # whether the last turn went to the job that had waited longest

    @property
    def work(self) -> int:
        """The rest of all jobs, in characters."""
        return sum(self._left)

    def work_before(self, size: int) -> int:
        """Return the rest of the jobs that go before a new job of this size, in characters."""
        return sum(self._left[: size.bit_length() + 1])

    def add(self, job: TextWork, now: float) -> None:
        """Let a new job wait for its first turn."""
        job.size = min(job.left.bit_length(), _SIZES - 1)
        self._left[job.size] += job.left
        self.put_back(job, now)

    def put_back(self, job: TextWork, now: float) -> None:
        """Let a job wait for its next turn."""
        self._places += 1
        job.place, job.since = self._places, now
        is_long = job.announced is not None and job.announced > LONG_PIECE
        (self._long if is_long else self._short).add(job)

    def take(self, now: float, *, takes_long: bool) -> TextWork | None:
        """Return the job that is next, `None` if no job waits; a job with a long piece if `takes_long`."""
        lines = [self._short, self._long] if takes_long else [self._short]
        oldest = [job for line in lines if (job := line.oldest()) is not None]
        if not oldest:
            return None
        job = min(oldest, key=lambda job: job.since)
        self._was_oldest = not self._was_oldest and now - job.since >= AGE_S
        if not self._was_oldest:
            shortest = [job for line in lines if (job := line.shortest()) is not None]
            job = min(shortest, key=_urgency)
        job.place = 0
        return job

    def spend(self, job: TextWork, characters: int) -> None:
        """Note that a piece of a job is done."""
        spent = min(characters, job.left)
        job.left -= spent
        self._left[job.size] -= spent

    def drop(self, job: TextWork) -> None:
        """End a job: finished, failed, or not wanted any more. May be called twice."""
        self.spend(job, job.left)
        job.is_dropped = True
        if job.place:  # else a thread is working on it, and ends it
            job.place = 0
            job.work.close()


class _Line:
    """Jobs by size and by age. Entries of jobs that no longer wait are skipped.

    Under a stream of short jobs, entries of long jobs are never reached. So whenever the entries double, the
    entries of jobs that no longer wait are removed.
    """

    def __init__(self) -> None:
        self._by_size: list[tuple[tuple[int, float, int], TextWork]] = []
        self._by_age: deque[tuple[int, TextWork]] = deque()
        self._most = _FEW

    def __len__(self) -> int:
        return len(self._by_size) + len(self._by_age)

    def add(self, job: TextWork) -> None:
        heapq.heappush(self._by_size, (_urgency(job), job))
        self._by_age.append((job.place, job))
        if len(self) > self._most:
            self._by_size = [(key, job) for key, job in self._by_size if key[2] == job.place]
            self._by_age = deque((place, job) for place, job in self._by_age if place == job.place)
            heapq.heapify(self._by_size)
            self._most = 2 * len(self) + _FEW

    def shortest(self) -> TextWork | None:
        while self._by_size and self._by_size[0][0][2] != self._by_size[0][1].place:
            heapq.heappop(self._by_size)
        return self._by_size[0][1] if self._by_size else None

    def oldest(self) -> TextWork | None:
        while self._by_age and self._by_age[0][0] != self._by_age[0][1].place:
            self._by_age.popleft()
        return self._by_age[0][1] if self._by_age else None


def _urgency(job: TextWork) -> tuple[int, float, int]:
    return job.left.bit_length(), job.deadline, job.place
