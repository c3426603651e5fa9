"""Bodies are read to the same result however their bytes are cut, and never past their end."""

import itertools
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill_server.base.errors import HeadersTooLarge, MalformedRequest
from vecmill_server.http1.body_framing import FORBIDDEN_TRAILERS, BodyFraming, ChunkedBody, CountedBody
from vecmill_server.http1.connection_limits import READ_BYTES
from vecmill_server.http1.request_head import MAX_HEADERS


def read_body(framing: BodyFraming, pieces: list[bytes]) -> tuple[bytes, bytes | None]:
    """The body and the bytes after it, `None` if the body has not ended."""
    body = b""
    for index, piece in enumerate(pieces):
        found, rest = framing.feed(piece)
        body += found
        if rest is not None:
            return body, rest + b"".join(pieces[index + 1 :])
    return body, None


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=50)),
    cuts=CUTS,
    trailer=st.sampled_from([b"", b"x: y\r\n", b"x:\r\nx-y: \xe9 \t\r\n"]),
)
def test_chunks_are_joined_and_the_next_request_is_untouched(
    chunks: list[bytes], cuts: list[int], trailer: bytes
) -> None:
    framed = b"".join(b"%X;name=value\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    data = framed + b"000\r\n" + trailer + b"\r\nGET / HTTP/1.1"
    assert read_body(ChunkedBody(1_000), cut(data, cuts)) == (b"".join(chunks), b"GET / HTTP/1.1")


@given(body=st.binary(min_size=1), cuts=CUTS)
def test_a_counted_body_ends_after_its_length(body: bytes, cuts: list[int]) -> None:
    assert read_body(CountedBody(len(body)), cut(body + b"rest", cuts)) == (body, b"rest")
    assert read_body(CountedBody(len(body) + 1), cut(body, cuts)) == (body, None)


@pytest.mark.parametrize(
    "data",
    [b"zz\r\n", b"-1\r\n", b"0x1\r\n", b" 1\r\n", b"1 \r\n", b"\r\n", b"1\n", b"1\r\nab\r\n", b"1\r\na\n",
     b"f" * 16 + b"\r\n", b"1;" + b"x" * 2_000, b"1;a\rb\r\n", b"1;a\x00b\r\n", b"1;a=\x7f\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 10_000])
def test_chunks_that_are_not_valid_are_refused(data: bytes, size: int) -> None:
    with pytest.raises(MalformedRequest):
        read_body(ChunkedBody(1_000), [data[at : at + size] for at in range(0, len(data), size)])


@pytest.mark.parametrize("trailers", [b"x: y\r\n" * 200, b"x" * 2_000])
def test_trailers_have_the_limit_of_headers(trailers: bytes) -> None:
    with pytest.raises(HeadersTooLarge):
        ChunkedBody(1_000).feed(b"0\r\n" + trailers)


REFUSED_TRAILERS = {
    "junk": b"junk\r\n",
    "a NUL": b"x-a: b\x00c\r\n",
    "a control character": b"x-a: b\x01c\r\n",
    "DEL": b"x-a: b\x7fc\r\n",
    "a folded trailer": b"x-a: b\r\n c\r\n",
    "a fold at the start": b" x-a: b\r\n",
    "no name": b": b\r\n",
    "a space before the colon": b"x-a : b\r\n",
    "a space in the name": b"x a: b\r\n",
    "a name that is not ASCII": b"x-\xe9: b\r\n",
    "a bare line feed": b"x-a: b\n\r\n",
    "a bare carriage return": b"x-a: b\rc\r\n",
    "another request": b"GET / HTTP/1.1\r\nhost: x\r\n",
    **{name.decode(): b"%s: 1\r\n" % name.title() for name in sorted(FORBIDDEN_TRAILERS)},
}


@pytest.mark.parametrize("trailers", REFUSED_TRAILERS.values(), ids=REFUSED_TRAILERS.keys())
def test_trailers_have_the_rules_of_headers(trailers: bytes) -> None:
    for before, size in itertools.product((b"", b"x-b: c\r\n"), (1, 10_000)):
        data = b"1\r\na\r\n0\r\n" + before + trailers + b"\r\n"
        with pytest.raises(MalformedRequest):
            read_body(ChunkedBody(1_000), [data[at : at + size] for at in range(0, len(data), size)])


def test_the_number_of_trailers_is_limited() -> None:
    body = ChunkedBody(1_000_000)
    body.feed(b"0\r\n" + b"a:b\r\n" * MAX_HEADERS)
    with pytest.raises(HeadersTooLarge):
        body.feed(b"a:b\r\n\r\n")


def test_bodies_in_the_smallest_chunks_are_refused() -> None:
    with pytest.raises(MalformedRequest, match="larger chunks"):
        ChunkedBody(1_000).feed(b"1\r\na\r\n" * 100_000)
    body, _ = ChunkedBody(1_000).feed(b"8\r\naaaaaaaa\r\n" * 100_000)
    assert len(body) == 800_000


@pytest.mark.parametrize("chunk", [b"3\r\nabc\r\n", b"4;\r\nabcd\r\n"], ids=["plain", "extended"])
def test_small_chunks_need_no_call_each(chunk: bytes) -> None:
    """The calls took 14 ms for one read of a socket, so one client kept the event loop busy."""
    count = READ_BYTES // len(chunk)
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    framing = ChunkedBody(1_000)
    sys.setprofile(note)
    try:
        body, _ = framing.feed(chunk * count)
    finally:
        sys.setprofile(None)
    assert len(body) > 2 * count
    assert calls < 10
