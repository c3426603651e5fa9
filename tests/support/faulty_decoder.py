"""A decoding process with faults on demand: `python -m support.faulty_decoder`, with the same arguments.

A file that begins with the name of a fault is what a fault in a decoder would be. All others are decoded.
"""

import os
import signal
import sys

from vecmill.pictures import decoding_process
from vecmill.pictures.decoding_process import Decode
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits

CRASH, HANG, LIE, FLOOD = b"crash", b"hang", b"lie", b"flood"
MODULE = "support.faulty_decoder"
prepare = decoding_process.prepare


def prepare_with_faults() -> Decode:
    """Return a function that decodes, or does what the file asks for."""
    decode = prepare()

    def decode_or_fail(data: bytes, geometry: PictureGeometry, limits: PictureLimits) -> bytes:
        if data.startswith(CRASH):
            os.kill(os.getpid(), signal.SIGSEGV)
        if data.startswith(HANG):
            signal.pause()
        if data.startswith(LIE):
            return b"not the pixels"
        if data.startswith(FLOOD):
            return bytes(50_000_000)
        return decode(data, geometry, limits)

    return decode_or_fail


if __name__ == "__main__":
    decoding_process.prepare = prepare_with_faults
    decoding_process.main(sys.argv[1:])
