"""Work on texts in slices, so that long work can stop between slices, and other work can run in between.

Work is a generator. Before each slice it yields the number of characters that the slice will read, and at the
end it returns the result.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Slices = Generator[int, None, T]


def complete(work: Slices[T]) -> T:
    """Do all slices now, and return the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
