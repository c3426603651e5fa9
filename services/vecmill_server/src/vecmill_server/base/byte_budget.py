"""The byte budget: one limit on the bytes that all connections of the process hold.

How it works. Everything that a client can make the server keep is counted in one `ByteBudget`: heads,
bodies, decoded bodies, and answers that clients have not taken yet. Each request counts its bytes in a
`HeldBytes`, which gives them back when the request ends.

Rules:
1. A request that does not fit is refused with `BuffersFull`, before its bytes are read or made. Requests
   that were accepted keep their bytes: no connection is closed to make room for another.
2. Requests of more than `SMALL_BYTES` may use three quarters of the budget. The last quarter is for small
   requests, so a few clients with large bodies cannot keep the others out.
3. Bytes that already exist, such as a head that has arrived, are counted even above the limit.
4. After a request that held more than `LARGEST_KEPT_BYTES`, memory is due to be returned to the system: the
   allocator would keep it, and the next large bodies would come on top.
"""

from vecmill.hardware.memory import available_mb
from vecmill_server.base.errors import BodyTooLarge, BuffersFull

SMALL_BYTES = 64 * 1024

LARGEST_KEPT_BYTES = 16 * 1024 * 1024

# The default limit: a quarter of the memory that is available at the start, within these bounds.
MIN_DEFAULT_BYTES = 64 * 1024 * 1024
MAX_DEFAULT_BYTES = 1024 * 1024 * 1024


def default_budget_bytes() -> int:
    """Return the default limit for the available memory of this machine or container."""
    available = available_mb()
    if available is None:
        return MAX_DEFAULT_BYTES // 2
    return max(MIN_DEFAULT_BYTES, min(MAX_DEFAULT_BYTES, int(available * 1e6) // 4))


class ByteBudget:
    """The limit in bytes, and the bytes that are held now. Used from the event loop only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.is_return_due = False  # of freed memory to the system

    def hold(self) -> "HeldBytes":
        """Return an empty count for one request."""
        return HeldBytes(self)

    @property
    def large_limit(self) -> int:
        """The limit for requests of more than `SMALL_BYTES`."""
        return self.limit - self.limit // 4


class HeldBytes:
    """The bytes that one request holds. As a context manager, gives them back at the end."""

    __slots__ = ("_budget", "count")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.count = 0

    def reserve(self, count: int) -> None:
        """Hold `count` more bytes.

        Raises `BuffersFull` if they do not fit now, and `BodyTooLarge` if they can never fit.
        """
        request_count, budget = self.count + count, self._budget
        limit = budget.limit if request_count <= SMALL_BYTES else budget.large_limit
        if budget.held + count <= limit:
            self.count = request_count
            budget.held += count
            return
        if request_count > budget.large_limit:
            raise BodyTooLarge(
                f"The request needs {request_count} bytes of buffers, more than this server has "
                "(--max-buffered-bytes). Send fewer texts at a time."
            )
        raise BuffersFull("The buffers of the server are full of other requests. Try again later.")

    def add(self, count: int) -> None:
        """Hold `count` more bytes, which exist already, even above the limit. May be negative."""
        self.count += count
        self._budget.held += count

    def release(self) -> None:
        """Give all bytes back."""
        self._budget.held -= self.count
        if self.count > LARGEST_KEPT_BYTES:
            self._budget.is_return_due = True
        self.count = 0

    def __enter__(self) -> "HeldBytes":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
