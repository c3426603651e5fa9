"""How much of a batch is in flight: as many texts as come back within half a second.

What is in flight takes room in the queue, and is done again after a restart; too little of it leaves lanes
idle. So the window grows while lines come back quickly, and shrinks when they do not: because texts are long,
the model is slow, or others are asking. A few texts stay in flight always. A line is not divided: one of
thousands of texts is all in flight, and gives way all the same, for age never puts it before others.
"""

from dataclasses import dataclass

TARGET_S = 0.5
FEWEST_TEXTS = 8
MOST_TEXTS = 512
MOST_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class Window:
    """How many texts and bytes are in flight, and may be."""

    limit: float = FEWEST_TEXTS
    texts: int = 0
    bytes: int = 0

    @property
    def has_room(self) -> bool:
        """Whether another line may start. One may always, however large it is."""
        return not self.bytes or (self.texts < self.limit and self.bytes < MOST_BYTES)

    def enter(self, texts: int, size: int) -> None:
        """A line starts, of so many texts and bytes: 1 of each at least."""
        self.texts += texts
        self.bytes += size

    def leave(self, texts: int, size: int) -> None:
        """It has ended, and so have all before it."""
        self.texts -= texts
        self.bytes -= size

    def observe(self, texts: int, duration_s: float) -> None:
        """A line of so many texts took so long."""
        if duration_s <= TARGET_S:
            self.limit = min(MOST_TEXTS, self.limit + texts)
        else:
            # By a share for each text, so that a round trip that is too long by half costs about a third.
            late = min(1.0, duration_s / TARGET_S - 1)
            self.limit = max(FEWEST_TEXTS, self.limit - late * texts / 2)
