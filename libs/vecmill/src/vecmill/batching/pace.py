"""The cost model: the predicted time of engine calls, and the best size of batches, measured on the way.

**Time.** A call over texts of n1, n2, ... tokens on one core is expected to take

    fixed_s + sum over texts of per_token_s * n * (1 + n / PAIR_TOKENS)

where the second term of each text is its attention, which grows with the square of its length. Two factors
correct this expectation:

- `slowness` is the recent ratio of measured to expected time of narrow calls. It follows the machine, whose
  speed changes when other processes run, within a few seconds of calls: a long call counts for more.
- Each length has a factor of its own, in powers of two and for each width, because attention, caches and the
  number of cores change the speed. It is relative to `slowness`, so that it stays true when the machine
  becomes slower. A length that has not been measured takes the factor of the nearest shorter length, or else
  of the nearest longer one.

Work that waits is counted without `slowness`, and multiplied by it when it is turned into a time. So the
predicted time of a queue follows the machine, however old the work is.

`lasting_slowness` is the same ratio, in which one slow call of each lane counts little. Requests are ended
early by this ratio, since a stall of the process must not end requests that would be answered in time.

**Size.** The best number of tokens of a full batch depends on the engine, the precision, the processor and
the texts: larger batches spread the fixed cost of a call, and smaller ones stay in the processor cache. So
while more work waits than fits into a batch, now and then a batch has half or twice the size. Each full
narrow call is compared with the time that its texts should take, and the medians of the last calls of the
sizes are compared with each other, as soon as a size has enough calls. The size changes if another one is
faster by more than `LEAST_GAIN`. It begins at `FIRST_TOKENS`, and a changed machine changes it again.

A size whose calls take longer than `LONGEST_CALL_S` on one core is not tried, because requests that arrive
wait for the calls that run. With a given size, nothing is measured.

Pure: no clock and no thread. The dispatcher's lock guards it, except where single numbers are read.
"""

import statistics
from collections import deque
from collections.abc import Sequence

from vecmill.values.engine_plan import DEFAULT_BATCH_TOKENS, CostModel

# A text of this length spends as much time in attention as in everything else. The factors replace this
# guess as soon as long texts are measured.
PAIR_TOKENS = 2_048

# How much of the old slowness, and of the old factor of a length, one new measurement leaves. The slowness
# moves first, since it is what changes while a server runs.
MEMORY = 0.9
LENGTH_MEMORY = 0.97

# A call that should take longer than this counts as several, at most as `MOST_CALLS`. Otherwise the pace of
# an engine with long calls would follow a change only after half a minute.
CALL_S = 0.2
MOST_CALLS = 3.0

# In `lasting_slowness` the calls of all lanes together count as at most this many times slower than the calls
# before. So a stall moves it by a tenth, and it becomes ten times as high in about 30 calls of each lane.
MOST_RISE = 2.0

# A call counts as at most this many times slower or faster than expected.
MOST_SLOWNESS = 100.0

# A batch is so large that the fixed cost of its call is at most this share, within the limits below.
FIXED_SHARE = 0.03
LEAST_BATCH_TOKENS = (64, 512)

# The core seconds of the shortest call that counts. Shorter times are mostly noise.
LEAST_S = 1e-6

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


class Pace:
    """The predicted cost of texts and calls; see the module docstring."""

    def __init__(self, cost: CostModel, *, narrow: int, lanes: int = 1) -> None:
        """`cost` was measured on `narrow` cores, the width of a call when all `lanes` work.

        `least_batch_tokens` is the size of a batch below which the fixed cost of a call counts.
        """
        self.slowness = 1.0
        self.lasting_slowness = 1.0
        self._fixed_s = cost.fixed_s * narrow
        self._per_token_s = cost.per_token_s * narrow
        self.narrow = narrow
        least, most = LEAST_BATCH_TOKENS
        self.least_batch_tokens = min(
            max(round(cost.fixed_s / (FIXED_SHARE * cost.per_token_s)), least), most
        )
        self._most_rise = 1.0 + (MOST_RISE - 1.0) / lanes
        self._factors: dict[int, dict[int, float]] = {}
        self._nearest: dict[tuple[int, int], int] = {}  # of a width and a size: the measured size that counts

    def text_cost_s(self, tokens: int) -> float:
        """Return the core seconds that a text adds to a narrow call, before they are slowed."""
        text_s = self._per_token_s * tokens * (1 + tokens / PAIR_TOKENS)
        return text_s * self._factor(self.narrow, tokens)

    def call_s(self, lengths: Sequence[int], width: int) -> float:
        """Return the seconds of a call over texts of these lengths on `width` cores."""
        call_s = self._fixed_s + self._texts_s(lengths)
        return self.slowness * call_s * self._factor(width, max(lengths)) / width

    def texts_s(self, lengths: Sequence[int]) -> float:
        """Return the seconds that texts of these lengths add to a narrow call on one lane."""
        factor = self._factor(self.narrow, max(lengths))
        return self.slowness * self._texts_s(lengths) * factor / self.narrow

    def core_s(self, texts_s: float) -> float:
        """Return the core seconds of a narrow call over texts of this cost together, see `text_cost_s`."""
        return self.slowness * (self._fixed_s + texts_s)

    def wide_share(self, width: int, longest: int) -> float:
        """Return which part of the cores of a wide call shortens it, for texts of this length.

        1 before such calls were measured.
        """
        if not self._factors.get(width):
            return 1.0
        return self._factor(self.narrow, longest) / self._factor(width, longest)

    def measure(self, lengths: Sequence[int], width: int, seconds: float) -> None:
        """Correct the predictions by a call that took `seconds` on `width` cores."""
        longest = max(lengths)
        factor, call_s = self._factor(width, longest), self._fixed_s + self._texts_s(lengths)
        calls = min(max(1.0, self.slowness * call_s * factor / width / CALL_S), MOST_CALLS)
        ratio = max(seconds * width, LEAST_S) / max(call_s, LEAST_S)
        ratio = min(max(ratio, 1 / MOST_SLOWNESS), MOST_SLOWNESS)
        if width == self.narrow:
            slowness = ratio / factor
            self.slowness = _blend(self.slowness, slowness, MEMORY**calls)
            steady = min(slowness, self._most_rise * self.lasting_slowness)
            self.lasting_slowness = _blend(self.lasting_slowness, steady, MEMORY)
        memory = LENGTH_MEMORY if width == self.narrow else MEMORY
        measured, size = self._factors.setdefault(width, {}), longest.bit_length()
        if size not in measured:
            self._nearest.clear()
        measured[size] = _blend(factor, ratio / self.slowness, memory)

    def _texts_s(self, lengths: Sequence[int]) -> float:
        per_token_s, texts_s = self._per_token_s, 0.0
        for tokens in lengths:
            texts_s += per_token_s * tokens * (1 + tokens / PAIR_TOKENS)
        return texts_s

    def _factor(self, width: int, longest: int) -> float:
        measured = self._factors.get(width)
        if not measured:
            return 1.0
        size = longest.bit_length()
        nearest = self._nearest.get((width, size))
        if nearest is None:
            nearest = min(measured, key=lambda other: (other > size, abs(other - size)))
            self._nearest[width, size] = nearest
        return measured[nearest]


class BatchSize:
    """The number of tokens of a full batch of one engine; see the module docstring."""

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
        if self._is_given or tokens <= LEAST_FILL * (self.tokens // 2):  # too few for any size
            return
        size = next((size for size in self._sizes() if LEAST_FILL * size < tokens <= size), None)
        if size is None:
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


def _blend(old: float, new: float, memory: float) -> float:
    return memory * old + (1 - memory) * new
