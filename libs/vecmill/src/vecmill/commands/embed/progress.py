"""The progress display of `vecmill embed`: a bar on a terminal, else a line per minute."""

import sys
from collections.abc import Iterable
from typing import Any, Self, TextIO, TypeVar

from tqdm import tqdm

from vecmill.values.clock import Clock, monotonic

# The weight of the newest rate: the lengths of calls differ, and the estimated time should not jump.
_SMOOTHING = 0.05
_FORMAT = "{percentage:3.0f}% {bar} {n:,}/{total:,}{unit}, {rate_noinv_fmt}{postfix}, {remaining} left"

# The time between two lines in a log.
LINE_EVERY_S = 60.0

T = TypeVar("T")


def show_progress(items: Iterable[T], doing: str, total: int | None = None) -> Iterable[T]:
    """Return the items, with a progress bar on standard error if it is a terminal."""
    counted: Iterable[T] = tqdm(
        items, doing, total, unit=" rows", file=sys.stderr, disable=None, leave=False, dynamic_ncols=True
    )
    return counted


class ProgressBar:
    """A bar on standard error, or lines if this is not a terminal. Satisfies `pipeline.EmbedProgress`."""

    def __init__(
        self,
        total: int,
        *,
        noun: str = "texts",
        file: TextIO | None = None,
        clock: Clock = monotonic,
        line_every_s: float = LINE_EVERY_S,
    ) -> None:
        """`noun` is the plural of what is embedded, and `line_every_s` the least time between two lines."""
        self._noun = noun
        self.texts_existing = 0
        self.texts_embedded = 0
        self.tokens = 0
        self._clock = clock
        self._line_every_s = line_every_s
        self._began: float | None = None
        self._ended = self._told = 0.0
        self._total = total
        self._file = file or sys.stderr
        self._bar: Any = tqdm(
            total=total,
            unit=f" {noun}",
            file=self._file,
            disable=None,  # if the file is not a terminal
            smoothing=_SMOOTHING,
            dynamic_ncols=True,
            bar_format=_FORMAT,
        )

    def __enter__(self) -> Self:
        self._began = self._ended = self._told = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the newest text."""
        return self._ended - (self._began or 0.0)

    def add_existing(self, texts: int) -> None:
        """Count texts of an earlier run. The speed does not include these texts."""
        self.texts_existing += texts
        if not self._bar.disable:
            self._bar.initial += texts
            self._bar.n += texts
            self._bar.last_print_n += texts
            self._bar.refresh()

    def add_embedded(self, texts: int, tokens: int) -> None:
        """Count newly embedded texts and their tokens."""
        self.texts_embedded += texts
        self.tokens += tokens
        self._ended = self._clock()
        self._bar.set_postfix_str(self._token_rate().removeprefix(", "), refresh=False)
        self._bar.update(texts)
        if self._bar.disable and self._ended - self._told >= self._line_every_s:
            self._told = self._ended
            self._tell()

    def interruption(self) -> str:
        """Return a sentence for somebody who has stopped the run."""
        done = self.texts_existing + self.texts_embedded
        share = f" ({done / self._total:.0%})" if self._total else ""
        return f"{done:,} of {self._total:,} {self._noun}{share} are embedded."

    def summary(self) -> str:
        """Return a sentence with the number of texts and the speed."""
        earlier = f", and {self.texts_existing:,} in an earlier run" if self.texts_existing else ""
        speed = (
            f" ({self._rate(self.texts_embedded):,.1f} {self._noun}/s{self._token_rate()})"
            if self.texts_embedded
            else ""
        )
        return (
            f"{self.texts_embedded:,} {self._noun} were embedded in {self.elapsed_s:,.1f} s{speed}{earlier}."
        )

    def _tell(self) -> None:
        done, texts_per_s = self.texts_existing + self.texts_embedded, self._rate(self.texts_embedded)
        left = tqdm.format_interval((self._total - done) / texts_per_s)
        print(
            f"{done / self._total:.0%} {done:,}/{self._total:,} {self._noun}, "
            f"{texts_per_s:,.1f} {self._noun}/s{self._token_rate()}, {left} left",
            file=self._file,
            flush=True,
        )

    def _token_rate(self) -> str:
        """Return the tokens a second, for the end of a list; nothing for pictures, whose number is fixed."""
        return f", {self._rate(self.tokens):,.0f} tokens/s" if self._noun == "texts" else ""

    def _rate(self, count: int) -> float:
        return count / max(self.elapsed_s, 1e-9)


class StepProgress:
    """Bars on standard error for steps whose sizes are known; without a terminal, a line for each step."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._step: str | None = None
        self._bar: Any = None

    def tell(self, step: str, done: int, total: int) -> None:
        """Show that so much of a step is done."""
        if step != self._step:
            self.close()
            self._step = step
            self._bar = tqdm(
                total=total,
                desc=step,
                unit="",
                file=self._file,
                disable=None,
                leave=False,
                dynamic_ncols=True,
            )
            if self._bar.disable:
                print(f"{step}: {total:,}", file=self._file, flush=True)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """End the last step."""
        if self._bar is not None:
            self._bar.close()
        self._step = self._bar = None
