"""The trailers of chunked bodies: the header lines after the last chunk (RFC 9112, section 7.1.2).

The server has no use for trailers and discards them. They are checked all the same, because a proxy in front
of the server may read them differently, or merge them with the headers. The lines go to the parser that reads
heads, after a request line of our own, so the same characters are refused.
"""

import httptools

from vecmill_server.base.errors import HeadersTooLarge, HttpError, MalformedRequest
from vecmill_server.http1.request_head import MAX_HEADERS

# Fields that say where a message ends, where it goes, what it is or who sends it; RFC 9110, section 6.5.1.
FORBIDDEN_TRAILERS = frozenset(
    {
        b"authorization",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-range",
        b"content-type",
        b"cookie",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


class TrailerReader:
    """The reader of the trailers of one body."""

    def __init__(self) -> None:
        self._count = 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n")

    def feed(self, line: bytes) -> None:
        """Read a line, which ends with CR and LF and is not empty.

        Raises `MalformedRequest`, or `HeadersTooLarge` for too many trailers.
        """
        try:
            self._parser.feed_data(line)
        except httptools.HttpParserError as error:
            refusal = error.__context__
            raise (refusal if isinstance(refusal, HttpError) else _malformed()) from None

    def end(self) -> None:
        """Read the empty line after the trailers: the parser knows only now where the last one ends.

        Raises as `feed`.
        """
        self.feed(b"\r\n")
        # It refers to this reader, so both would stay until the garbage collector finds them.
        del self._parser

    # Callback of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        if self._count > MAX_HEADERS:
            raise HeadersTooLarge(f"The body has more than {MAX_HEADERS} trailers.")
        field = name.lower()
        if field in FORBIDDEN_TRAILERS:
            raise MalformedRequest(f"The field {field.decode('ascii')} must be a header, not a trailer.")


def _malformed() -> MalformedRequest:
    return MalformedRequest("The trailers of the body are not valid HTTP/1.1.")
