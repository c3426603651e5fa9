"""Reads the headers of safetensors files on a hub by range requests, without the tensors.

A header begins with its length in eight bytes, and has the names, types and shapes of all tensors. It is not
verified: a digest is that of a whole file. So a header only describes a model, and nothing is served from it.

Source of the format: safetensors, `README.md`, section "Format".
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from vecmill.models.downloads import HubFile
from vecmill.models.safetensors_file import LENGTH_BYTES, MAX_HEADER_BYTES

_FIRST_BYTES = 128 * 2**10  # the whole header of most models


def fetch_header(file: HubFile) -> bytes:
    """Return the first bytes of a safetensors file: the header with its length, or less if it is too long.

    A header that is larger than the limit of `models.weights`, or than the file, is not fetched. Raises any
    exception of the hub's client.
    """
    begin = _fetch_begin(file, _FIRST_BYTES)
    size = LENGTH_BYTES + int.from_bytes(begin[:LENGTH_BYTES], "little")
    if size > min(file.size, LENGTH_BYTES + MAX_HEADER_BYTES):
        return begin[:LENGTH_BYTES]
    return (begin if size <= len(begin) else _fetch_begin(file, size))[:size]


def _fetch_begin(file: HubFile, nbytes: int) -> bytes:
    """Return the first `nbytes` of a file, or all of a smaller file. Nothing else that arrives is kept."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
    from huggingface_hub.utils.tqdm import silent_tqdm

    wanted = min(nbytes, file.size)
    if wanted == 0:
        return b""
    begin = _Begin(wanted)
    with suppress(_MoreThanAsked):  # from a hub that does not know ranges
        http_get(
            file.url,
            cast(BinaryIO, begin),
            headers={**build_hf_headers(), "Range": f"bytes=0-{wanted - 1}"},
            expected_size=wanted,
            displayed_filename=file.name,
            tqdm_class=silent_tqdm,
        )
    return bytes(begin.content)


class _MoreThanAsked(Exception):
    """The hub sends more of a file than was requested."""


@dataclass(slots=True)
class _Begin:
    """The first `wanted` bytes of a file. Has the methods that the hub's client uses."""

    wanted: int
    content: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes) -> int:
        """Append `data`. Raises `_MoreThanAsked` for more than the wanted bytes."""
        room = self.wanted - len(self.content)
        self.content += data[:room]
        if len(data) > room:
            raise _MoreThanAsked
        return len(data)

    def tell(self) -> int:
        """Return the position."""
        return len(self.content)

    def seek(self, position: int) -> int:
        """Go to a position, at which `truncate` must follow."""
        del self.content[position:]
        return position

    def truncate(self) -> None:
        """Do nothing: `seek` has removed the content after the position."""
