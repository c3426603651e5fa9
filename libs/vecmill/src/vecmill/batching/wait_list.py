"""The waiting jobs of one priority, indexed by age and by token length. Pure.

The list has three indexes over the same jobs, each updated in O(1): by age (an ordered dict), by length (an
ordered dict for each length), and a sorted list of the lengths that occur (a few hundred at most).
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from vecmill.batching.ticket import Job


class WaitList:
    """Waiting jobs of one priority."""

    def __init__(self) -> None:
        self.tokens = 0
        self._by_age: OrderedDict[Job, None] = OrderedDict()
        self._by_length: dict[int, OrderedDict[Job, None]] = {}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[Job]:
        """Iterate over the jobs, the oldest first."""
        return iter(self._by_age)

    def add(self, job: Job) -> None:
        """Put `job` at the end."""
        self._by_age[job] = None
        if job.tokens not in self._by_length:
            self._by_length[job.tokens] = OrderedDict()
            insort(self._lengths, job.tokens)
        self._by_length[job.tokens][job] = None
        self.tokens += job.tokens

    def remove(self, job: Job) -> None:
        """Remove `job` from any position."""
        del self._by_age[job]
        same_length = self._by_length[job.tokens]
        del same_length[job]
        if not same_length:
            del self._by_length[job.tokens]
            del self._lengths[bisect_left(self._lengths, job.tokens)]
        self.tokens -= job.tokens

    def oldest(self) -> Job:
        """Return the job that has waited the longest. Raises `StopIteration` if there is none."""
        return next(iter(self._by_age))

    def near(self, length: int) -> Iterator[Job]:
        """Yield all jobs, closest to `length` tokens first, oldest first among equals.

        The wait list must not change during the iteration.
        """
        above = bisect_left(self._lengths, length)
        below = above - 1
        while below >= 0 or above < len(self._lengths):
            down = length - self._lengths[below] if below >= 0 else None
            up = self._lengths[above] - length if above < len(self._lengths) else None
            if up is None or (down is not None and down < up):
                yield from self._by_length[self._lengths[below]]
                below -= 1
            else:
                yield from self._by_length[self._lengths[above]]
                above += 1

    def check(self) -> None:
        """Assert that the three indexes agree."""
        by_length = [job for length in self._lengths for job in self._by_length[length]]
        assert set(by_length) == set(self._by_age)
        assert len(by_length) == len(self._by_age)
        assert all(job.tokens == length for length in self._lengths for job in self._by_length[length])
        assert self._lengths == sorted(self._by_length)
        assert self.tokens == sum(job.tokens for job in self._by_age)
