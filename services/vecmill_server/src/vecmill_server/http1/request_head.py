"""The reading of request heads: the request line and headers of one HTTP/1.1 request.

How it works. httptools' parser reads the bytes as they arrive, so a head gives the same result in one packet
and in many. The parser never sees a byte after the head: the empty line that ends the head is found here,
across packets too, and bodies are read by `body_framing`. Therefore an offered upgrade to another protocol,
which Java's HTTP client sends with each first request, changes nothing.

The parser refuses bare line feeds, folded headers, spaces before colons, control characters, and repeated or
invalid `Content-Length`. This module refuses what the parser accepts, but what a proxy in front of the server
could read differently (RFC 9112, sections 2.2, 3 and 6):

- a request line other than method, target, and HTTP/1.1 or HTTP/1.0, with one space between them. The parser
  also accepts several spaces, and the protocols RTSP and ICE;
- a carriage return or a line feed alone before the request line. A few empty lines are skipped;
- `Transfer-Encoding` other than `chunked`, or in HTTP/1.0;
- a `Host` that is missing, repeated, invalid or not the host of the request target.

Nearly every head is ordinary: it arrives whole, and has nothing that could be read in two ways. One pattern
reads such a head as the parser would, in a small part of the time (`read_ordinary_head`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import httptools

from vecmill_server.base.errors import HeadersTooLarge, HttpError, MalformedRequest

END = b"\r\n\r\n"

# Each header takes about 150 bytes of memory besides its text.
MAX_HEADERS = 256

# The most digits of a `Content-Length` that the parser is not asked about.
ORDINARY_DIGITS = 15

# The empty lines before a request. Some clients send one after a body; RFC 9112, section 2.2.
MAX_EMPTY_LINES = 8
EMPTY_LINES = b"\r\n" * MAX_EMPTY_LINES

# The parser checks the characters of the method and the target.
_REQUEST_LINE = re.compile(rb"\S+ \S+ HTTP/1\.[01]\r\n")

# A registered name or an address, with an optional port; RFC 3986, section 3.2.
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=\-]*(:[0-9]*)?|\[[A-Za-z0-9:.%_~\-]+\](:[0-9]*)?")

# A whole head of which only names and values remain to be read: no query and no escape in the path, one space
# after each colon, and no others around a value.
_ORDINARY = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9._/-]*) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9_-]+: [!-~](?:[ -~]*[!-~])?\r\n)+)\r\n"
)
# The headers that decide where a message ends or what follows it.
_FRAMING = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"proxy-connection"})

# The begin of a target in absolute form, which clients send to proxies. The group is the host and port.
_ABSOLUTE = re.compile(rb"[^/?#:]+://(?:[^/?#@]*@)?([^/?#]*)")


@dataclass(slots=True)
class RequestHead:
    """A complete head. `content_length` is `None` if the body is chunked, and 0 if there is no body.

    The names in `headers` are in lower case. `index` has the stripped value of the first header of each name.
    """

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    index: dict[bytes, bytes]
    content_length: int | None
    keeps_alive: bool
    expects_continue: bool


def read_ordinary_head(data: bytes, max_bytes: int) -> tuple[RequestHead, bytes] | None:
    """Return what `HeadReader.feed` would return for an ordinary head of at most `max_bytes`, else `None`."""
    found = _ORDINARY.match(data, 0, max_bytes)
    if found is None:
        return None
    lines = found[3].split(b"\r\n")
    lines.pop()  # behind the last line end
    index: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b": ")
        index[name.lower()] = value
    length, connection = index.get(b"content-length", b"0"), index.get(b"connection")
    if (
        len(index) < len(lines)  # a header is repeated
        or len(index) > MAX_HEADERS
        or not _FRAMING.isdisjoint(index)
        or not (length.isdigit() and len(length) <= ORDINARY_DIGITS)
        or not (connection is None or connection.lower() == b"keep-alive")
        or _HOST.fullmatch(index.get(b"host", b"?")) is None
    ):
        return None
    head = RequestHead(
        method=found[1].decode("ascii"),
        path=found[2],
        query=b"",
        version="1.1",
        headers=list(index.items()),
        index=index,
        content_length=int(length),
        keeps_alive=True,
        expects_continue=False,
    )
    return head, data[found.end() :]


class HeadReader:
    """The reader of one head. It counts all bytes, and refuses a head of more than `max_bytes`."""

    byte_count = 0
    _skipped = b""  # the empty lines before the request
    _line = b""  # the request line and what arrived with its end
    _tail = b""  # the last bytes that arrived, in which the end may have begun
    _url = b""
    _is_complete = False
    _keeps_alive = False

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._headers: list[tuple[bytes, bytes]] = []
        self._index: dict[bytes, bytes] = {}
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> tuple[RequestHead | None, bytes]:
        """Read `data`. Return the head, or `None` if it is not complete, and the bytes after the head.

        Raises `MalformedRequest` or `HeadersTooLarge`.
        """
        if not self.byte_count and (self._skipped or data[:1] <= b"\r"):
            data = self._skip_empty_lines(data)
        seen = self._tail + data
        end = seen.find(END)
        is_last = end >= 0
        if is_last:
            end += len(END) - len(self._tail)
            head, rest = data[:end], data[end:]
        else:
            head, rest, self._tail = data, b"", seen[1 - len(END) :]
        self.byte_count += len(head)
        if self.byte_count > self._max_bytes:
            raise HeadersTooLarge(f"The headers are larger than {self._max_bytes} bytes.")
        if b"\n" not in self._line:
            self._line += head
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # declined
        except httptools.HttpParserError as error:
            refusal = error.__context__
            raise (refusal if isinstance(refusal, HttpError) else _not_http()) from None
        if self._is_complete is not is_last:
            raise _not_http()
        return (self._finish() if is_last else None), rest

    def _skip_empty_lines(self, data: bytes) -> bytes:
        """Return `data` without the empty lines before the request."""
        data = self._skipped + data
        rest = data.lstrip(b"\r\n")
        self._skipped = skipped = data[: len(data) - len(rest)]
        is_cut = len(skipped) % 2  # the line feed may arrive later
        if not EMPTY_LINES.startswith(skipped) or (is_cut and rest):
            raise MalformedRequest(
                f"Only empty lines, at most {MAX_EMPTY_LINES} and each CR LF, may precede the request line."
            )
        return rest

    def _finish(self) -> RequestHead:
        if _REQUEST_LINE.match(self._line) is None:  # not earlier: the parser's errors come first
            raise MalformedRequest(
                "The request line must be a method, a target and HTTP/1.1 or HTTP/1.0, with one space "
                "between them."
            )
        parser, version, index = self._parser, self._parser.get_http_version(), self._index
        content_length: int | None = int(index.get(b"content-length", 0))
        if b"transfer-encoding" in index:
            _check_transfer_encodings(version, self._values(b"transfer-encoding"))
            content_length = None
        host = index.get(b"host")
        # If some header is repeated, it may be this one.
        if host is None or len(index) < len(self._headers) or _HOST.fullmatch(host) is None:
            _check_hosts(version, self._values(b"host"))
        expects_continue = b"expect" in index and self._values(b"expect")[-1].lower() == b"100-continue"
        path, query = self._split_url(host)
        method = parser.get_method().decode("ascii")
        keeps_alive = version == "1.1" and self._keeps_alive
        # It refers to this reader, so both would stay until the garbage collector finds them.
        del self._parser
        return RequestHead(
            method, path, query, version, self._headers, index, content_length, keeps_alive, expects_continue
        )

    def _values(self, name: bytes) -> list[bytes]:
        """Return the values of all headers with this name, stripped."""
        return [value.strip() for key, value in self._headers if key == name]

    def _split_url(self, host: bytes | None) -> tuple[bytes, bytes]:
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserError:
            raise _not_http() from None
        absolute = _ABSOLUTE.match(self._url)
        if absolute is not None and host is not None and host.lower() != absolute[1].lower():
            raise MalformedRequest("The request target and the Host header name different hosts.")
        path = url.path or (b"/" if absolute else b"")
        if not path or not path.isascii():
            raise _not_http()
        return path, url.query or b""

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise _not_http()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) >= MAX_HEADERS:
            raise HeadersTooLarge(f"The request has more than {MAX_HEADERS} headers.")
        name = name.lower()
        self._headers.append((name, value))
        self._index.setdefault(name, value.strip())

    def on_headers_complete(self) -> None:
        self._is_complete = True
        self._keeps_alive = self._parser.should_keep_alive()  # the parser forgets it at the end of the head


def _check_transfer_encodings(version: str, values: Sequence[bytes]) -> None:
    if version != "1.1" or any(value.lower() != b"chunked" for value in values):
        raise MalformedRequest("The only accepted Transfer-Encoding is chunked, in HTTP/1.1.")


def _check_hosts(version: str, hosts: Sequence[bytes]) -> None:
    for host in hosts:
        if _HOST.fullmatch(host) is None:
            raise MalformedRequest("The Host header is not a host name or address.")
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise MalformedRequest("A request must have exactly one Host header.")


def _not_http() -> MalformedRequest:
    return MalformedRequest("This is not a valid HTTP/1.1 request.")
