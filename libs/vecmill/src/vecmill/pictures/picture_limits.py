"""The limits on one picture, which hold before its pixels are decoded."""

from dataclasses import dataclass

from vecmill.errors import InvalidRequest

# What the file and small buffers may take beside the pixels.
_BESIDE_PIXELS = 24 * 2**20
_PIXEL_BYTES = 5  # in which Pillow keeps red, green and blue, and one colour that is turned


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """What the file of one picture may be, and what decoding it may take.

    `max_side` holds for the file and for the picture after resizing. `max_seconds` is processor time, and
    holds where a child process decodes: other pictures wait as long for a file that was made to be slow.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 30_000_000
    max_side: int = 65_535  # of JPEG and GIF
    max_seconds: float = 3.0  # thrice what the largest pictures take

    @property
    def memory_bytes(self) -> int:
        """The memory that reading one picture may take. It is enough for `max_pixels` in most formats."""
        return _PIXEL_BYTES * self.max_pixels + _BESIDE_PIXELS

    def check_bytes(self, size: int) -> None:
        """Raise `InvalidRequest` for an empty or too large file of `size` bytes."""
        if not size:
            raise unreadable("is empty")
        if size > self.max_bytes:
            raise unreadable(f"has {size} bytes; at most {self.max_bytes} are accepted")

    def check_sides(self, width: int, height: int) -> None:
        """Raise `InvalidRequest` for too many pixels, or a side that is too long or of no pixels."""
        if min(width, height) < 1:
            raise unreadable(f"has {width} x {height} pixels")
        if max(width, height) > self.max_side:
            raise unreadable(
                f"has {width} x {height} pixels; a side of at most {self.max_side} pixels is accepted"
            )
        if width * height > self.max_pixels:
            raise unreadable(f"has {width} x {height} pixels; at most {self.max_pixels} are accepted")

    def check_resized(self, width: int, height: int, side: int) -> None:
        """Raise `InvalidRequest` for a picture that would have the longer side `side` after resizing."""
        if side > self.max_side:
            raise unreadable(
                f"has {width} x {height} pixels, and is so narrow that resizing it for this model makes a "
                f"side of {side} pixels; at most {self.max_side} are accepted"
            )

    def check_memory(self, needed: int) -> None:
        """Raise `InvalidRequest` for a picture that needs more memory than one may have."""
        if needed > self.memory_bytes:
            raise unreadable(
                f"takes {needed >> 20} MiB of memory to decode; at most {self.memory_bytes >> 20} are "
                "accepted. Make it smaller"
            )


def unreadable(reason: str) -> InvalidRequest:
    """Return the error of a picture that is not read. `reason` is the rest of a sentence about it."""
    return InvalidRequest(f"`picture` {reason}.", field="picture")
