"""How a picture of any size becomes one of the size that a model reads: resized, then cropped."""

from dataclasses import dataclass
from typing import NamedTuple


class KeptPart(NamedTuple):
    """The pixels from `start` to `end` of one side, and their place `at` in the side after cropping."""

    start: int
    end: int
    at: int


@dataclass(frozen=True, slots=True)
class PictureGeometry:
    """The steps. Sizes are (height, width) in pixels.

    `resized` is the size of every picture after resizing, or the length of its shorter side, or `None` for
    pictures that keep their size. `resample` is the number of Pillow's filter. `crop` is the part from the
    middle, with black around a smaller picture; `None` where `resized` is the size that the model reads.
    """

    resized: tuple[int, int] | int | None
    resample: int
    crop: tuple[int, int] | None

    @property
    def size(self) -> tuple[int, int]:
        """The size of every picture in the end."""
        size = self.crop or self.resized
        assert isinstance(size, tuple)  # read_picture_settings refuses all others
        return size

    def resize(self, height: int, width: int) -> tuple[int, int]:
        """Return the size after resizing a picture of this size."""
        if self.resized is None:
            return height, width
        if isinstance(self.resized, tuple):
            return self.resized
        longer = int(self.resized * max(height, width) / min(height, width))
        return (longer, self.resized) if width <= height else (self.resized, longer)

    def cut(self, height: int, width: int) -> tuple[KeptPart, KeptPart]:
        """Return the rows and the columns that cropping keeps of a resized picture."""
        kept = self.crop or (height, width)
        return _middle(height, kept[0]), _middle(width, kept[1])


def _middle(side: int, kept: int) -> KeptPart:
    if kept > side:
        return KeptPart(0, side, (kept - side + 1) // 2)
    start = (side - kept) // 2
    return KeptPart(start, start + kept, 0)
