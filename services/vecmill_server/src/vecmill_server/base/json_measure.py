"""The size that a JSON document will have in memory, measured before it is decoded.

The decoder holds the interpreter lock from the first byte to the last, and an object in memory can be many
times larger than its text: 32 MiB of `[]` are 11 million lists of 64 bytes. The values outside strings are
therefore counted here, piece by piece and mostly without the lock, and the count has a limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.hardware.memory import return_freed_memory
from vecmill_server.base.errors import InvalidJson

PIECE_BYTES = 256 * 1024

# A string of ASCII without escapes, such as a picture in base64, takes a byte for each character, whatever is
# beside it. Shorter ones are counted like the widest string.
PLAIN_BYTES = 64 * 1024

# The memory of a value that counts 1.
VALUE_BYTES = 64

# The values that each byte outside strings counts for, by the memory and time of what it begins. Each value
# in a list but the first follows a comma.
WEIGHTS = ((ord(","), 1), (ord("["), 2), (ord("{"), 3), (ord(":"), 4))

# Above this size, the memory of the pieces is given back before the document is decoded. The decoder copies
# the document, so most memory is in use then.
LARGE_DOCUMENT_BYTES = 8 * 1024 * 1024

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The largest document to decode.

    `max_values` is a limit on the sum of `WEIGHTS`. `max_wide_characters` limits documents with a character
    outside the Basic Multilingual Plane: Python keeps a string with such a character in four bytes for each
    character.
    """

    max_values: int
    max_wide_characters: int


def measure_document(body: bytes | bytearray, limits: DocumentLimits) -> int:
    """Return an upper bound of the bytes that the document `body` will take in memory.

    Raises `InvalidJson` if the document is over `limits`.
    """
    try:
        return _measure(body, limits)
    finally:
        if len(body) > LARGE_DOCUMENT_BYTES:
            return_freed_memory()


def _measure(body: bytes | bytearray, limits: DocumentLimits) -> int:
    values = weigh_values(body, limits.max_values)
    if values > limits.max_values:
        raise InvalidJson(
            f"The body has more than {limits.max_values} JSON values. Send fewer texts or ids at a time."
        )
    width = _character_width(body)
    plain = _count_plain(body) if width > 1 else 0
    characters = _count_characters(body) - plain if width > 1 else len(body)
    if width == 4 and characters > limits.max_wide_characters:
        raise InvalidJson(
            f"The body has more than {limits.max_wide_characters} characters. Send fewer texts at a time."
        )
    return values * VALUE_BYTES + width * characters + plain


def weigh_values(body: bytes | bytearray, at_most: int) -> int:
    """Return the weight of the values in `body`, or more than the weight if it is at most `at_most`."""
    raw = 0  # includes strings, so it may be too large
    for piece in _pieces(body):
        raw += _weigh(piece)
        if raw > at_most:
            return _count_outside_strings(body, at_most)
    return raw


def _pieces(body: bytes | bytearray) -> Iterator[Bytes]:
    whole = np.frombuffer(body, np.uint8)
    return (whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES))


def _weigh(piece: Bytes) -> int:
    return sum(weight * int(np.count_nonzero(piece == byte)) for byte, weight in WEIGHTS)


def _count_outside_strings(body: bytes | bytearray, at_most: int) -> int:
    total, is_inside, carried = 0, False, b""
    for start in range(0, len(body), PIECE_BYTES):
        text = carried + bytes(body[start : start + PIECE_BYTES])
        # An escape sequence may cross the end of the piece.
        carried = b"\\" if (len(text) - len(text.rstrip(b"\\"))) % 2 else b""
        text = text.removesuffix(carried)
        if b"\\" in text:
            text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        piece = np.frombuffer(text, np.uint8)
        quotes = (piece == ord('"')).view(np.uint8)
        inside = np.bitwise_xor.accumulate(quotes) ^ np.uint8(is_inside)
        total += _weigh(piece * (inside ^ 1))
        if total > at_most:
            return total
        is_inside = bool(inside[-1]) if len(inside) else is_inside
    return total


def _character_width(body: bytes | bytearray) -> int:
    """Return the bytes that Python takes for each character of the widest string, at most."""
    highest = max((int(piece.max()) for piece in _pieces(body)), default=0)
    if highest >= 0xF0:
        return 4
    escaped = _escape_width(np.frombuffer(body, np.uint8)) if b"\\" in body else 1
    return max(escaped, 2 if highest >= 0xC4 else 1)


def _escape_width(whole: Bytes) -> int:
    """Return the width of the widest character that an escape sequence may stand for."""
    width = 1
    for start in range(0, len(whole), PIECE_BYTES):
        at = np.flatnonzero(whole[start : start + PIECE_BYTES] == ord("\\")) + start
        at = at[at + 2 < len(whole)]
        at = at[whole[at + 1] == ord("u")]
        if (whole[at + 2] | 0x20 == ord("d")).any():  # the first half of a surrogate pair, or close to it
            return 4
        width = 2 if len(at) else width
    return width


def _count_plain(body: bytes | bytearray) -> int:
    """Return the bytes of long strings of ASCII without escapes, and of what is as long between strings."""
    whole, total, last = np.frombuffer(body, np.uint8), 0, 0
    for offset in range(0, len(whole), PIECE_BYTES):
        quotes = np.flatnonzero(whole[offset : offset + PIECE_BYTES] == ord('"')) + offset
        edges = np.concatenate(([last], quotes))
        for index in np.flatnonzero(np.diff(edges) > PLAIN_BYTES):
            first, end = edges[index], edges[index + 1]
            part = whole[first + 1 : end]
            # A quote after a backslash may be within a string that is not plain elsewhere.
            is_edge = whole[first] == ord('"') and (first == 0 or whole[first - 1] != ord("\\"))
            if is_edge and part.max() < 0x80 and not (part == ord("\\")).any():
                total += len(part)
        last = edges[-1]
    return total


def _count_characters(body: bytes | bytearray) -> int:
    """Return the characters of UTF-8, which are the bytes that do not continue a character."""
    return sum(int(np.count_nonzero((piece & 0xC0) != 0x80)) for piece in _pieces(body))
