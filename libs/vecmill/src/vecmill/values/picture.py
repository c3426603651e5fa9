"""A picture to embed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of a picture's file: PNG, JPEG, WebP or GIF."""

    data: bytes = field(repr=False)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file. Raises OSError."""
        return cls(Path(path).read_bytes())

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class PictureUrl(Picture):
    """A picture that a request names by its URL, without content until `Caller.fetch` has got it.

    `field` is the place of the URL in the request, for error messages.
    """

    data: bytes = field(default=b"", init=False, repr=False)
    url: str = field(repr=False)  # it may contain a password
    field: str


def select_pictures(inputs: Iterable[object]) -> tuple[Picture, ...]:
    """Return the inputs that are pictures."""
    return tuple(each for each in inputs if isinstance(each, Picture))
