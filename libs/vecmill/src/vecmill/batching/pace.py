"""The predicted time of engine calls, corrected by the measured time of every call.

A call over texts of n1, n2, ... tokens on one core is expected to take

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

Pure: no clock and no thread. The dispatcher's lock guards it, except where single numbers are read.
"""

from collections.abc import Iterable

from vecmill.values.engine_info import CostModel

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

    def text_cost_s(self, tokens: int) -> float:
        """Return the core seconds that a text adds to a narrow call, before they are slowed."""
        return self._text_s(tokens) * self._factor(self.narrow, tokens)

    def call_s(self, lengths: Iterable[int], width: int) -> float:
        """Return the seconds of a call over texts of these lengths on `width` cores."""
        lengths = tuple(lengths)
        return self.slowness * self._call_s(lengths) * self._factor(width, max(lengths)) / width

    def texts_s(self, lengths: Iterable[int]) -> float:
        """Return the seconds that texts of these lengths add to a narrow call on one lane."""
        lengths = tuple(lengths)
        texts_s = sum(map(self._text_s, lengths))
        return self.slowness * texts_s * self._factor(self.narrow, max(lengths)) / self.narrow

    def measure(self, lengths: Iterable[int], width: int, seconds: float) -> None:
        """Correct the predictions by a call that took `seconds` on `width` cores."""
        lengths = tuple(lengths)
        longest = max(lengths)
        calls = min(max(1.0, self.call_s(lengths, width) / CALL_S), MOST_CALLS)
        ratio = max(seconds * width, LEAST_S) / max(self._call_s(lengths), LEAST_S)
        ratio = min(max(ratio, 1 / MOST_SLOWNESS), MOST_SLOWNESS)
        if width == self.narrow:
            slowness = ratio / self._factor(width, longest)
            self.slowness = _blend(self.slowness, slowness, MEMORY**calls)
            steady = min(slowness, self._most_rise * self.lasting_slowness)
            self.lasting_slowness = _blend(self.lasting_slowness, steady, MEMORY)
        memory = LENGTH_MEMORY if width == self.narrow else MEMORY
        factor = _blend(self._factor(width, longest), ratio / self.slowness, memory)
        self._factors.setdefault(width, {})[longest.bit_length()] = factor

    def _text_s(self, tokens: int) -> float:
        return self._per_token_s * tokens * (1 + tokens / PAIR_TOKENS)

    def _call_s(self, lengths: Iterable[int]) -> float:
        return self._fixed_s + sum(map(self._text_s, lengths))

    def _factor(self, width: int, longest: int) -> float:
        measured = self._factors.get(width)
        if not measured:
            return 1.0
        size = longest.bit_length()
        nearest = min(measured, key=lambda other: (other > size, abs(other - size)))
        return measured[nearest]


def _blend(old: float, new: float, memory: float) -> float:
    return memory * old + (1 - memory) * new
