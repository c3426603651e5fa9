"""The files of the page: HTML, styles, scripts and icons, as they are in the package."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Self

PAGE = "index.html"

_TYPES: Mapping[str, str] = MappingProxyType(
    {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
)


@dataclass(frozen=True, slots=True)
class PageAssets:
    """The template of the page, and the contents of the other files by name.

    `version` changes with every file, so browsers may keep what they loaded under this version.
    """

    page: str
    contents: Mapping[str, bytes]
    version: str

    @classmethod
    def read(cls) -> Self:
        """Read the files of the package."""
        found = dict(sorted(_walk(files(__package__) / "assets", "")))
        digest = hashlib.sha256()
        for name, content in found.items():
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
        page = found.pop(PAGE).decode()
        contents = {name: content for name, content in found.items() if media_type(name) is not None}
        return cls(page, contents, digest.hexdigest()[:12])


def media_type(name: str) -> str | None:
    """Return the media type of a file, `None` for files that the page does not load."""
    return next((found for suffix, found in _TYPES.items() if name.endswith(suffix)), None)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        else:
            yield name, entry.read_bytes()
