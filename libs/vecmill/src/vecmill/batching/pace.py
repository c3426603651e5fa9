"""The predicted time of engine calls, corrected by the measured time of every call.

A call over texts of n1, n2, ... tokens on one core is expected to take

    fixed_s + sum over texts of per_token_s * n * (1 + n / PAIR_TOKENS)

where the second term of each text is its attention, which grows with the square of its length. The result is
multiplied by a correction, the recent ratio of measured to expected time. Corrections differ by the width of
the call and by the length of its longest text, in powers of two, because attention, caches and the number of
cores change the speed. A length that has not been measured takes the correction of the nearest shorter
length, or else of the nearest longer one.

Pure: no clock and no thread. The dispatcher's lock guards it.
"""

from collections.abc import Iterable

from vecmill.values.engine_info import CostModel

# A text of this length spends as much time in attention as in everything else. The corrections replace this
# guess as soon as long texts are measured.
PAIR_TOKENS = 2_048

# How much of the old correction one new measurement leaves.
MEMORY = 0.9

# The core seconds of the shortest call that counts. Shorter times are mostly noise.
LEAST_S = 1e-6


class Pace:
    """The predicted cost of texts and calls; see the module docstring."""

    def __init__(self, cost: CostModel, *, narrow: int) -> None:
        """`cost` was measured on `narrow` cores, the width of a call when all lanes work."""
        self._fixed_s = cost.fixed_s * narrow
        self._per_token_s = cost.per_token_s * narrow
        self._narrow = narrow
        self._corrections: dict[int, dict[int, float]] = {}

    def text_s(self, tokens: int) -> float:
        """Return the core seconds that a text of this length adds to a narrow call."""
        return self._text_s(tokens) * self._correction(self._narrow, tokens)

    def call_s(self, lengths: Iterable[int], width: int) -> float:
        """Return the seconds of a call over texts of these lengths on `width` cores."""
        lengths = tuple(lengths)
        return self._call_s(lengths) * self._correction(width, max(lengths)) / width

    def measure(self, lengths: Iterable[int], width: int, seconds: float) -> None:
        """Correct the predictions by a call that took `seconds` on `width` cores."""
        lengths = tuple(lengths)
        longest = max(lengths)
        ratio = max(seconds * width, LEAST_S) / max(self._call_s(lengths), LEAST_S)
        old = self._correction(width, longest)
        self._corrections.setdefault(width, {})[longest.bit_length()] = MEMORY * old + (1 - MEMORY) * ratio

    def _text_s(self, tokens: int) -> float:
        return self._per_token_s * tokens * (1 + tokens / PAIR_TOKENS)

    def _call_s(self, lengths: Iterable[int]) -> float:
        return self._fixed_s + sum(map(self._text_s, lengths))

    def _correction(self, width: int, longest: int) -> float:
        measured = self._corrections.get(width)
        if not measured:
            return 1.0
        size = longest.bit_length()
        nearest = min(measured, key=lambda other: (other > size, abs(other - size)))
        return measured[nearest]
