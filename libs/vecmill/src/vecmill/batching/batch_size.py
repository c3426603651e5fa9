"""The number of tokens that a full batch has: measured while the engine works. Pure.

How it works. The best size depends on the engine, the precision, the processor and the texts: larger batches
spread the fixed cost of a call, and smaller ones stay in the processor cache. So while more work waits than
fits into a batch, now and then a batch has half or twice the size. Each full narrow call is compared with the
time that its texts should take (`pace`), and the medians of the last calls of the sizes are compared with
each other, as soon as a size has enough calls. The size changes if another one is faster by more than
`LEAST_GAIN`. It begins at `FIRST_TOKENS`, and a changed machine changes it again.

A size whose calls take longer than `LONGEST_CALL_S` on one core is not tried, because requests that arrive
wait for the calls that run. With a given size, nothing is measured.
"""

import statistics
from collections import deque
from collections.abc import Sequence

from vecmill.batching.pace import Pace
from vecmill.values.engine_plan import DEFAULT_BATCH_TOKENS

FIRST_TOKENS = DEFAULT_BATCH_TOKENS
LEAST_TOKENS = 256
MOST_TOKENS = 16_384

# One full batch in so many has another size.
TRY_EVERY = 8
# So many calls of a size are remembered, and so many are necessary to judge it.
CALLS_KEPT = 31
CALLS_NEEDED = 15
# The share of time that another size must save. Medians of so many calls on a busy machine repeat to this.
LEAST_GAIN = 0.02
LONGEST_CALL_S = 0.3
# Another size is tried only if a batch of it would be full to this share; so sizes are told apart.
LEAST_FILL = 0.75


class BatchSize:
    """The size of full batches of one engine, in tokens; see the module docstring."""

    def __init__(self, given: int | None, pace: Pace) -> None:
        """`given` is the size that the user, the plan or the engine sets, `None` if it is to be measured."""
        self.tokens = FIRST_TOKENS if given is None else given
        self._is_given = given is not None
        self._pace = pace
        self._full_batches = 0
        self._times: dict[int, deque[float]] = {}

    def next_tokens(self, waiting: int) -> int:
        """Return the size of the next batch, when each lane has `waiting` tokens to choose from."""
        if self._is_given or waiting < self.tokens:
            return self.tokens
        self._full_batches += 1
        if self._full_batches % TRY_EVERY:
            return self.tokens
        others = [size for size in self._neighbours() if size <= waiting]
        turn = self._full_batches // TRY_EVERY
        return others[turn % len(others)] if others else self.tokens

    def measure(self, lengths: Sequence[int], seconds: float) -> None:
        """Learn from a narrow call over texts of these lengths. Call it before `Pace.measure`."""
        tokens = sum(lengths)
        size = next((size for size in self._sizes() if LEAST_FILL * size < tokens <= size), None)
        if self._is_given or size is None:
            return
        kept = self._times.setdefault(size, deque(maxlen=CALLS_KEPT))
        kept.append(seconds / self._pace.texts_s(lengths))
        self._choose()

    def _sizes(self) -> tuple[int, ...]:
        return (self.tokens, *self._neighbours())

    def _neighbours(self) -> list[int]:
        half, double = self.tokens // 2, 2 * self.tokens
        found = [half] if half >= LEAST_TOKENS else []
        if (
            double <= MOST_TOKENS
            and self._pace.call_s([double // 8] * 8, self._pace.narrow) <= LONGEST_CALL_S
        ):
            found.append(double)
        return found

    def _choose(self) -> None:
        times = {size: self._times.get(size, ()) for size in self._sizes()}
        medians = {size: statistics.median(kept) for size, kept in times.items() if len(kept) >= CALLS_NEEDED}
        if self.tokens not in medians:
            return
        best = min(medians, key=lambda size: medians[size])
        if medians[best] < (1 - LEAST_GAIN) * medians[self.tokens]:
            self.tokens = best
            self._times = {size: kept for size, kept in self._times.items() if size in self._sizes()}
