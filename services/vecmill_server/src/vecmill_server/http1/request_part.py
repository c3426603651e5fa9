"""The parts of a request on a connection, of which `protocol` is in one at any time.

    HEAD ──> BODY ──> ANSWER ──> HEAD ...        any ──> REFUSED ──> closed

HEAD     `request_head` reads the head. The application starts when the head is complete.
BODY     `body_framing` finds the end of the body. `request_cycle` hands the body to the application.
ANSWER   The request is complete. Bytes of the next request wait until it is answered. If there are many, the
         connection stops reading.
REFUSED  The bytes were not HTTP, or too many, or too slow. The client may still be sending, and closing a
         socket with unread bytes resets the connection, so that the response can be lost. Therefore the
         server closes its sending side, discards further input, and then closes the socket.
"""

from enum import Enum, auto


class RequestPart(Enum):
    """What the connection reads or does, described in the docstring of this module."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    REFUSED = auto()
