"""The program of a child process that decodes pictures: `python -m vecmill.pictures.decoding_process`.

Its standard input is the socket. Its arguments are the process id of the parent and the fields of the limits.
It imports no NumPy, which would double its memory and its start.

It cannot do much beside decoding: it opens no file and no connection, writes nothing, and has little memory.
It ends when the parent ends, and heeds no signal that ends a group of processes: the parent may still want
answers.
"""

import io
import os
import resource
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import BinaryIO

from vecmill.errors import InvalidRequest, one_line
from vecmill.hardware.system_calls import (
    add_niceness,
    let_be_killed_first,
    limit_memory,
    name_process,
    signal_when_parent_ends,
)
from vecmill.pictures.decoder_frames import MOST_REASON, REQUEST, RESPONSE, Answer, read_geometry
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits

Decode = Callable[[bytes, PictureGeometry, PictureLimits], bytes]

# A flood of pictures leaves three quarters of a core that both want to the computation of texts.
NICENESS = 5

# Beside the memory of a picture: for Python, and for what Pillow keeps of a file.
_SPARE_BYTES = 8 * 2**20


def main(arguments: Sequence[str]) -> None:
    """Decode pictures until the parent ends or closes the socket."""
    parent, *values = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal_when_parent_ends(signal.SIGKILL)
    if os.getppid() != int(parent):  # it ended before the line above
        return
    name_process("vecmill-picture")
    add_niceness(NICENESS)
    let_be_killed_first()
    warnings.simplefilter("ignore")
    size, pixels, side = map(int, values[:3])
    limits = PictureLimits(size, pixels, side, float(values[3]))
    with socket.socket(fileno=os.dup(0)) as connection, connection.makefile("rb") as requests:
        try:
            decode = prepare()
        except Exception as error:
            send(connection, Answer.FAILED, one_line(error).encode())
            return
        _give_up_rights(limits)
        send(connection, Answer.READY, b"")
        serve(requests, connection, decode, limits)


def prepare() -> Decode:
    """Return the function that decodes, after it has decoded a picture of each format.

    So all that is imported or opened later is there before the process can open no more files.
    """
    from PIL import Image, TiffImagePlugin  # noqa: F401  reads EXIF data

    from vecmill.pictures.picture_files import decode

    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        file = io.BytesIO()
        Image.new("RGB", (2, 3)).save(file, kind)
        decode(file.getvalue(), PictureGeometry((2, 2), 3, None), PictureLimits())
    return decode


def _give_up_rights(limits: PictureLimits) -> None:
    limit_memory(limits.memory_bytes + _SPARE_BYTES)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))


def serve(requests: BinaryIO, connection: socket.socket, decode: Decode, limits: PictureLimits) -> None:
    """Answer requests until there are no more."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        lengths = REQUEST.unpack(head)
        geometry = read_geometry(requests.read(lengths[0]))
        data = requests.read(lengths[1])
        if len(data) < lengths[1]:
            return
        signal.setitimer(signal.ITIMER_PROF, limits.max_seconds)  # whose signal ends this process
        try:
            kind, content = Answer.PIXELS, decode(data, geometry, limits)
        except InvalidRequest as error:
            kind, content = Answer.REFUSED, error.message.encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(connection, kind, content)


def send(connection: socket.socket, kind: Answer, content: bytes) -> None:
    """Send one message. A message for people is shortened."""
    content = content if kind is Answer.PIXELS else content[:MOST_REASON]
    connection.sendall(RESPONSE.pack(kind, len(content)) + content)


if __name__ == "__main__":
    main(sys.argv[1:])
