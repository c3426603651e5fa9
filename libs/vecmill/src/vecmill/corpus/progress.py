"""How it goes: texts, texts and tokens a second, the time left. A bar on a terminal, else a line a minute."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from tqdm import tqdm

from vecmill.clock import Clock, monotonic

# How much the newest of tqdm's measurements counts: calls differ in length, and the time left is not to jump.
_SMOOTHING = 0.05
_FORMAT = "{percentage:3.0f}% {bar} {n:,}/{total:,} texts, {rate_noinv_fmt}{postfix}, {remaining} left"

# How often a log is told, which nobody looks at all the time.
LINE_EVERY_S = 60.0

T = TypeVar("T")


def show_steps(items: Iterable[T], doing: str, total: int | None = None) -> Iterable[T]:
    """The items, counted on standard error if somebody looks: what takes minutes where an input is large."""
    counted: Iterable[T] = tqdm(
        items, doing, total, unit=" rows", file=sys.stderr, disable=None, leave=False, dynamic_ncols=True
    )
    return counted


class Bar:
    """A bar on standard error, or lines where it is no terminal. Satisfies `pipeline.Progress`."""

    def __init__(self, total: int, *, file: TextIO | None = None, clock: Clock = monotonic) -> None:
        self.texts_found = 0
        self.texts_embedded = 0
        self.tokens = 0
        self._clock = clock
        self._began: float | None = None
        self._ended = self._told = 0.0
        self._total = total
        self._file = file or sys.stderr
        self._bar: Any = tqdm(
            total=total,
            unit=" texts",
            file=self._file,
            disable=None,  # where it is no terminal
            smoothing=_SMOOTHING,
            dynamic_ncols=True,
            bar_format=_FORMAT,
        )

    def __enter__(self) -> Self:
        self._began = self._ended = self._told = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds from the beginning to the newest text."""
        return self._ended - (self._began or 0.0)

    def found(self, texts: int) -> None:
        """As `Progress.found`. What an earlier run has done says nothing about the speed of this one."""
        self.texts_found += texts
        if not self._bar.disable:
            self._bar.initial += texts
            self._bar.n += texts
            self._bar.last_print_n += texts
            self._bar.refresh()

    def embedded(self, texts: int, tokens: int) -> None:
        """As `Progress.embedded`."""
        self.texts_embedded += texts
        self.tokens += tokens
        self._ended = self._clock()
        self._bar.set_postfix_str(f"{self._rate(self.tokens):,.0f} tokens/s", refresh=False)
        self._bar.update(texts)
        if self._bar.disable and self._ended - self._told >= LINE_EVERY_S:
            self._told = self._ended
            self._tell()

    def summary(self) -> str:
        """What was done, and how fast."""
        earlier = f", and {self.texts_found:,} in an earlier run" if self.texts_found else ""
        speed = (
            f" ({self._rate(self.texts_embedded):,.1f} texts/s, {self._rate(self.tokens):,.0f} tokens/s)"
            if self.texts_embedded
            else ""
        )
        return f"{self.texts_embedded:,} texts were embedded in {self.elapsed_s:,.1f} s{speed}{earlier}."

    def _tell(self) -> None:
        done, texts_per_s = self.texts_found + self.texts_embedded, self._rate(self.texts_embedded)
        left = tqdm.format_interval((self._total - done) / texts_per_s)
        print(
            f"{done / self._total:.0%} {done:,}/{self._total:,} texts, {texts_per_s:,.1f} texts/s, "
            f"{self._rate(self.tokens):,.0f} tokens/s, {left} left",
            file=self._file,
            flush=True,
        )

    def _rate(self, count: int) -> float:
        return count / max(self.elapsed_s, 1e-9)
