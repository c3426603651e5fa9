"""The framing of request bodies: the end of a body, by its length or its chunks (RFC 9112, section 7.1)."""

import re
from enum import Enum, auto
from typing import Protocol

from vecmill_server.base.errors import HeadersTooLarge, MalformedRequest
from vecmill_server.http1.trailers import TrailerReader

# The line with the size of a chunk, extensions included.
MAX_SIZE_LINE_BYTES = 1024
# The bytes around the chunks may be this many, and twice the bytes in the chunks. Bodies in chunks of one or
# two bytes would take much time to read.
FREE_FRAMING_BYTES = 64 * 1024
FRAMING_FACTOR = 2

# The size of a chunk and its extensions, which have no control characters except the tab.
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]{0,1000})?\r\n")


class BodyFraming(Protocol):
    """The framing of one body."""

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return the bytes of the body in `data`, and the bytes after the body, or `None` until it ends."""
        ...


class CountedBody:
    """A body of a given length in bytes, more than 0."""

    def __init__(self, length: int) -> None:
        self._left = length

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        self._left -= len(data)
        if self._left > 0:
            return data, None
        if self._left == 0:
            return data, b""
        end = len(data) + self._left
        return data[:end], data[end:]


class _Part(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILERS = auto()


class ChunkedBody:
    """A body in chunks. Extensions and trailers are checked and discarded.

    The trailers may have `max_trailer_bytes`.
    """

    def __init__(self, max_trailer_bytes: int) -> None:
        self._max_trailer_bytes = max_trailer_bytes
        self._part = _Part.SIZE
        self._line = b""  # the begin of a line that is not complete
        self._left = 0  # bytes of the current chunk
        self._body_bytes = 0
        self._framing_bytes = 0
        self._trailer_bytes = 0
        self._trailers: TrailerReader | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """As `BodyFraming.feed`. Raises `MalformedRequest` or, for the trailers, `HeadersTooLarge`."""
        pieces: list[bytes] = []
        at = 0
        while at < len(data):
            if self._part is _Part.SIZE and not self._line:
                at = self._read_whole_chunks(data, at, pieces)
            if self._part is _Part.DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._take(len(piece))
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            line = self._complete_line(data[at:end])
            at = end
            if line is not None and self._read_line(line):
                return b"".join(pieces), data[at:]
        return b"".join(pieces), None

    def _read_whole_chunks(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Read the chunks from the index `at` that are in `data` as a whole. Return the index after them.

        The other methods could read these chunks too, but take six times as long for each.
        """
        start, taken = at, 0
        while (line := _SIZE_LINE.match(data, at)) is not None:
            begin = line.end()
            end = begin + int(line[1], 16)
            if end == begin or data[end : end + 2] != b"\r\n":
                break
            pieces.append(data[begin:end])
            taken += end - begin
            at = end + 2
        self._body_bytes += taken
        self._count_framing(at - start - taken)
        return at

    def _take(self, count: int) -> None:
        self._body_bytes += count
        self._left -= count
        if not self._left:
            self._part = _Part.DATA_END

    def _complete_line(self, data: bytes) -> bytes | None:
        """Return the line that `data` completes, with its end, or `None`."""
        self._count(len(data))
        line = self._line + data
        if not line.endswith(b"\n"):
            self._line = line
            return None
        self._line = b""
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise _malformed()
        return line

    def _count(self, count: int) -> None:
        if self._part is _Part.TRAILERS:
            self._trailer_bytes += count
            if self._trailer_bytes > self._max_trailer_bytes:
                raise HeadersTooLarge(f"The trailers are larger than {self._max_trailer_bytes} bytes.")
            return
        self._count_framing(count)
        if len(self._line) + count > MAX_SIZE_LINE_BYTES:
            raise _malformed()

    def _count_framing(self, count: int) -> None:
        self._framing_bytes += count
        if self._framing_bytes > FREE_FRAMING_BYTES + FRAMING_FACTOR * self._body_bytes:
            raise MalformedRequest("The chunks of the body are too small. Send larger chunks.")

    def _read_line(self, line: bytes) -> bool:
        """Read a complete line between chunks. Return True if it ends the body."""
        if self._part is _Part.TRAILERS:
            return self._read_trailer(line)
        if self._part is _Part.DATA_END:
            if line != b"\r\n":
                raise _malformed()
            self._part = _Part.SIZE
            return False
        size = _SIZE_LINE.fullmatch(line)
        if size is None:
            raise _malformed()
        self._left = int(size[1], 16)
        self._part = _Part.DATA if self._left else _Part.TRAILERS
        return False

    def _read_trailer(self, line: bytes) -> bool:
        """Read a line of the trailers. Return True if it is the empty line that ends them."""
        if line == b"\r\n":
            if self._trailers is not None:
                self._trailers.end()
            return True
        if self._trailers is None:
            self._trailers = TrailerReader()
        self._trailers.feed(line)
        return False


def _malformed() -> MalformedRequest:
    return MalformedRequest("The chunks of the body are not valid HTTP/1.1.")
