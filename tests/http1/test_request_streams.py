"""Requests after one another on a connection: what the application gets, however their bytes are cut."""

import asyncio
import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.memory_transport import Application, give, make_share, open_connection

TURNS = 30  # of the event loop, enough for the answers to the requests of a stream

HEAD = b"POST /a HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GOOD = (
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\n\r\nGET /b?c HTTP/1.1\r\nhost: x\r\nx-a: b\r\n\r\n",
    HEAD + b"content-length: 5\r\n\r\nhello",
    CHUNKED + b"3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nx-a: b\r\nx-c:\r\n\r\n",
)
BAD_HEADS = (
    b"\rGET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\nGET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\n\nGET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\r\n" * 20 + b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET  /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /a  HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET\t/a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /a RTSP/1.0\r\nhost: x\r\n\r\n",
    b"SOURCE /a ICE/1.0\r\nhost: x\r\n\r\n",
)
# Their heads are right, so the application is called. It gets an error from `receive`.
BAD_BODIES = (
    CHUNKED + b"5\r\nhello\r\n0\r\njunk\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nx-a: \x00\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nx-a: b\r\n c\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nhost: y\r\n\r\n",
)
CUTS = st.lists(st.integers(0, 10_000), max_size=30)


async def send_pieces(pieces: Sequence[bytes]) -> tuple[Application, list[int], bool]:
    """Send the pieces; return what the application got, the statuses, and whether the connection ended."""
    app = Application()
    connection, transport, _ = open_connection(app, make_share())
    for piece in pieces:
        give(connection, piece)
        await asyncio.sleep(0)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", transport.written)]
    assert not transport.is_misused
    has_ended = transport.closed or transport.half_closed
    connection.connection_lost(None)
    return app, statuses, has_ended


def read_with_h11(data: bytes) -> list[tuple[str, str, bytes]]:
    """The requests in `data` before the first invalid one, as h11 reads them.

    It does not skip empty lines.
    """
    found: list[tuple[str, str, bytes]] = []
    with suppress(h11.RemoteProtocolError):
        while data := data.lstrip(b"\r\n"):
            connection = h11.Connection(h11.SERVER)
            connection.receive_data(data)
            request: Any = connection.next_event()
            if request is h11.NEED_DATA:
                break
            body = b""
            while isinstance(event := connection.next_event(), h11.Data):
                body += bytes(event.data)
            if not isinstance(event, h11.EndOfMessage):
                break
            found.append((request.method.decode(), request.target.decode(), body))
            data = connection.trailing_data[0]
    return found


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


@pytest.mark.promise("malformed-input")
@given(
    good=st.lists(st.sampled_from(GOOD), max_size=3),
    bad=st.sampled_from((*BAD_HEADS, *BAD_BODIES)),
    cuts=CUTS,
)
def test_the_application_gets_the_requests_before_an_invalid_one_and_nothing_after_it(
    good: list[bytes], bad: bytes, cuts: list[int]
) -> None:
    valid = b"".join(good)
    app, statuses, has_ended = asyncio.run(send_pieces(cut(valid + bad + GOOD[0], cuts)))
    assert app.requests == read_with_h11(valid)
    assert app.broken == (bad in BAD_BODIES)
    assert has_ended
    # An invalid head that arrived before the earlier answer ends the connection without an answer.
    refusals = [[400]] if not good or bad in BAD_BODIES else [[400], []]
    assert statuses[: len(good)] == [200] * len(good)
    assert statuses[len(good) :] in refusals


@given(good=st.lists(st.sampled_from(GOOD), min_size=1, max_size=4), cuts=CUTS)
def test_valid_requests_are_read_as_another_parser_reads_them(good: list[bytes], cuts: list[int]) -> None:
    data = b"".join(good)
    app, statuses, has_ended = asyncio.run(send_pieces(cut(data, cuts)))
    assert app.requests == read_with_h11(data)
    assert len(app.requests) == len(good)
    assert statuses == [200] * len(good)
    assert not has_ended


@pytest.mark.parametrize("bad", [*BAD_HEADS, *BAD_BODIES])
@pytest.mark.parametrize("is_second", [False, True], ids=["first", "second"])
async def test_an_invalid_request_is_refused_though_its_bytes_arrive_one_at_a_time(
    bad: bytes, is_second: bool
) -> None:
    data = (GOOD[0] if is_second else b"") + bad
    app, statuses, has_ended = await send_pieces([data[at : at + 1] for at in range(len(data))])
    assert len(app.requests) == is_second
    assert statuses == [200] * is_second + [400]
    assert has_ended


# Pieces that mutations put together to request lines and trailers, nearly all of them wrong.
PARTS = st.lists(
    st.sampled_from(
        [b"GET", b"POST", b" ", b"  ", b"\t", b"/a", b"//x", b"HTTP/1.1", b"HTTP/1.0", b"RTSP/1.0",
         b"\r", b"\n", b"\r\n", b"\x00", b"host: x", b"x-a", b":", b"b", b"\x0b", b"\x7f", b"\xe9"]
    ),
    max_size=14,
)  # fmt: skip
LINE = [b"GET", b" ", b"/a", b" ", b"HTTP/1.1", b"\r\n", b"host: x", b"\r\n"]


@st.composite
def nearly(draw: st.DrawFn, parts: Sequence[bytes]) -> bytes:
    """`parts` with some of them replaced, left out or repeated."""
    found = list(parts)
    for other in draw(PARTS.map(lambda drawn: drawn[:3])):
        at = draw(st.integers(0, len(found)))
        found[at : at + draw(st.integers(0, 1))] = [other]
    return b"".join(found)


@pytest.mark.promise("malformed-input")
@given(head=nearly(LINE), cuts=CUTS)
def test_what_is_accepted_as_a_head_another_parser_accepts_and_reads_alike(
    head: bytes, cuts: list[int]
) -> None:
    data = head + b"\r\n"
    app, _, _ = asyncio.run(send_pieces(cut(data, cuts)))
    assert app.requests == read_with_h11(data)[: len(app.requests)]


@pytest.mark.promise("malformed-input")
@given(trailers=nearly([b"x-a", b":", b" ", b"b", b"\r\n", b"x-a", b":", b"\r\n"]), cuts=CUTS)
def test_what_is_accepted_as_trailers_another_parser_accepts(trailers: bytes, cuts: list[int]) -> None:
    data = CHUNKED + b"1\r\na\r\n0\r\n" + trailers + b"\r\n"
    app, _, _ = asyncio.run(send_pieces(cut(data, cuts)))
    assert app.requests == read_with_h11(data)[: len(app.requests)]
