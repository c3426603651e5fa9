"""Work on texts in slices, so that long work can stop between slices, and other work can run in between.

Work is a generator. Before each slice it yields the number of characters that the slice will read, and at the
end it returns the result. Whoever sends true to it wants the slice at once: it may keep the interpreter lock
while it reads a short text. To give up the lock and to get it back takes longer than to read such a text, if
other threads wait for the lock.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Slices = Generator[int, bool | None, T]


def complete(work: Slices[T]) -> T:
    """Do all slices now, and return the result."""
    try:
        next(work)
        while True:
            work.send(True)
    except StopIteration as end:
        result: T = end.value
        return result
