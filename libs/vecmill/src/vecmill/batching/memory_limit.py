"""The tokens that one engine call may have, after a call ran out of memory.

A failed batch is split anyway (`containment`). The limit keeps the next batches from failing first: it halves
when a call runs out of memory, and grows slowly with calls that use it up. Without such a failure there is no
limit.
"""

import math
import threading
from collections.abc import Iterator

# The growth at each call that uses the limit up. It doubles the limit in about 70 calls.
GROWTH = 1.01

# Parts of messages of ONNX Runtime, OpenVINO and device drivers.
_MESSAGES = ("bad_alloc", "failed to allocate", "out of memory", "can't allocate memory", "cannot allocate")


class MemoryLimit:
    """The limit of all lanes of an engine; see the module docstring. Used by all threads."""

    def __init__(self) -> None:
        self.tokens = math.inf
        self._lock = threading.Lock()

    def allows(self, tokens: int, texts: int) -> bool:
        """Return whether a call of this size may be tried. A call with one text always may."""
        return texts == 1 or tokens <= self.tokens

    def halve(self, tokens: int) -> None:
        """Allow half of `tokens`, the size of a call that ran out of memory, unless the limit is lower."""
        with self._lock:
            self.tokens = max(1.0, min(self.tokens, tokens / 2))

    def grow(self, tokens: int) -> None:
        """Raise the limit a little if a call of `tokens`, near the limit, had enough memory."""
        with self._lock:
            if tokens > self.tokens / 2:
                self.tokens *= GROWTH


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error`, or an error that caused it, says that there was not enough memory."""
    return any(
        isinstance(one, MemoryError) or any(part in str(one).lower() for part in _MESSAGES)
        for one in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__
