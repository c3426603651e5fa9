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

# A text of at most this many bytes is read in 0.05 to 0.15 ms. So long may other threads wait for the lock.
_SHORT_BYTES = 256
# What a character outside ASCII may count. Those of three bytes are nearly a token each.
_BYTES_PER_CHARACTER = 3


def is_short(text: str) -> bool:
    """Return whether a text that is wanted at once may be read with the interpreter lock."""
    return len(text) * (1 if text.isascii() else _BYTES_PER_CHARACTER) <= _SHORT_BYTES


def complete(work: Slices[T]) -> T:
    """Do all slices now, and return the result."""
    try:
        next(work)
        while True:
            work.send(True)
    except StopIteration as end:
        result: T = end.value
        return result
