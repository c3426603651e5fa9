"""The limit on the texts of batches that are in flight."""

from dataclasses import dataclass

# The texts in flight: the time that a line may take, and the bounds.
TARGET_S = 0.5
FEWEST_TEXTS = 8
MOST_TEXTS = 512
MOST_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class InFlightLimit:
    """The number of texts and bytes in flight, and the limit of texts, so that a line takes `TARGET_S`.

    Texts in flight take space in the queue, and are computed again after a restart. Too few texts leave lanes
    idle. Therefore the limit grows while lines are answered quickly. It shrinks when they are not, because
    texts are long, the model is slow, or other requests wait. A few texts are always in flight. A line is not
    divided: all of its texts are in flight at once.
    """

    limit: float = FEWEST_TEXTS
    texts: int = 0
    bytes: int = 0

    @property
    def has_room(self) -> bool:
        """True if another line may start. If no line is in flight, any line may start."""
        return not self.bytes or (self.texts < self.limit and self.bytes < MOST_BYTES)

    def enter(self, texts: int, size: int) -> None:
        """Add a line that starts, with at least one text and one byte."""
        self.texts += texts
        self.bytes += size

    def leave(self, texts: int, size: int) -> None:
        """Subtract a line that has ended, like all lines before it."""
        self.texts -= texts
        self.bytes -= size

    def observe(self, texts: int, duration_s: float) -> None:
        """Adapt the limit to the duration of a line with this number of texts."""
        if duration_s <= TARGET_S:
            self.limit = min(MOST_TEXTS, self.limit + texts)
        else:
            # In proportion to the texts, so that lines at 1.5 times the target lower the limit by a
            # third.
            late = min(1.0, duration_s / TARGET_S - 1)
            self.limit = max(FEWEST_TEXTS, self.limit - late * texts / 2)
