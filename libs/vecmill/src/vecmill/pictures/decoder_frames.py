"""The messages between this process and the child processes that decode pictures, over a socket.

    to the child        the lengths of the geometry, as JSON, and of the file; then both
    from the child      its kind and the length of its content; then the content

The child sends one message when it is ready, and then one for each picture. What it sends is not trusted: a
file may have made it send anything.
"""

import json
import struct
from enum import IntEnum

from vecmill.pictures.geometry import PictureGeometry

REQUEST = struct.Struct("<II")
RESPONSE = struct.Struct("<BI")
MOST_REASON = 2000  # bytes of a message for people


class Answer(IntEnum):
    """The kind of a message from the child: what its content is."""

    READY = 0  # nothing
    FAILED = 1  # why the child cannot decode anything
    PIXELS = 2
    REFUSED = 3  # what is wrong with the picture


def write_geometry(geometry: PictureGeometry) -> bytes:
    """Return a geometry as JSON."""
    return json.dumps([geometry.resized, geometry.resample, geometry.crop]).encode()


def read_geometry(text: bytes) -> PictureGeometry:
    """Return the geometry of `write_geometry`."""
    resized, resample, crop = json.loads(text)
    return PictureGeometry(
        tuple(resized) if isinstance(resized, list) else resized,
        resample,
        None if crop is None else tuple(crop),
    )
