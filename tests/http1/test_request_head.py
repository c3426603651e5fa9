"""Heads are read to the same result however their bytes are cut, and never past their end."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill_server.base.errors import HeadersTooLarge, HttpError
from vecmill_server.http1.request_head import (
    MAX_EMPTY_LINES,
    MAX_HEADERS,
    HeadReader,
    RequestHead,
    read_ordinary_head,
)

CORPUS = Path(__file__).parents[1] / "http" / "corpus"

HOST = b"POST /a?b=c HTTP/1.1\r\nhost: x\r\n"
REFUSED = {
    "length and chunks": HOST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunks and length": HOST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n",
    "two lengths": HOST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n",
    "a length twice": HOST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n",
    "a list of lengths": HOST + b"content-length: 2, 2\r\n\r\n",
    "a length with a sign": HOST + b"content-length: +2\r\n\r\n",
    "an empty length": HOST + b"content-length: \r\n\r\n",
    "two codings": HOST + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "chunked twice": HOST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunked with a parameter": HOST + b"transfer-encoding: chunked;q=1\r\n\r\n",
    "another coding": HOST + b"transfer-encoding: xchunked\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a folded header": HOST + b"x-a: b\r\n c\r\n\r\n",
    "a folded length": HOST + b"content-length:\r\n 2\r\n\r\n",
    "a bare line feed": HOST + b"x-a: b\nx-c: d\r\n\r\n",
    "bare line feeds only": b"GET / HTTP/1.1\nhost: x\n\n",
    "a bare carriage return": HOST + b"x-a: b\rc\r\n\r\n",
    "a space before the colon": HOST + b"x-a : b\r\n\r\n",
    "a NUL": HOST + b"x-a: b\x00c\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": HOST + b"host: x\r\n\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nhost: x/y\r\n\r\n",
    "another host in the target": b"GET http://y/ HTTP/1.1\r\nhost: x\r\n\r\n",
    "another port in the target": b"GET http://x:81/ HTTP/1.1\r\nhost: x:80\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
    "RTSP": b"GET / RTSP/1.0\r\nhost: x\r\n\r\n",
    "a method of RTSP": b"SETUP / RTSP/1.0\r\nhost: x\r\n\r\n",
    "ICE": b"SOURCE / ICE/1.0\r\nhost: x\r\n\r\n",
    "two spaces before the target": b"GET  / HTTP/1.1\r\nhost: x\r\n\r\n",
    "two spaces after the target": b"GET /  HTTP/1.1\r\nhost: x\r\n\r\n",
    "a space before the method": b" GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a space after the version": b"GET / HTTP/1.1 \r\nhost: x\r\n\r\n",
    "a tab before the target": b"GET\t/ HTTP/1.1\r\nhost: x\r\n\r\n",
    "a tab after the target": b"GET /\tHTTP/1.1\r\nhost: x\r\n\r\n",
    "a vertical tab": b"GET /\x0b HTTP/1.1\r\nhost: x\r\n\r\n",
    "a form feed": b"GET / \x0cHTTP/1.1\r\nhost: x\r\n\r\n",
    "a carriage return in the line": b"GET /\rHTTP/1.1\r\nhost: x\r\n\r\n",
    "a bare carriage return before": b"\rGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a bare line feed before": b"\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a line feed after an empty line": b"\r\n\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "two carriage returns before": b"\r\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "line feed and carriage return": b"\n\rGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "many empty lines": b"\r\n" * (MAX_EMPTY_LINES + 1) + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
}
PASSED = {
    "no body": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "empty lines before": b"\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "as many empty lines as may be": b"\r\n" * MAX_EMPTY_LINES + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "an empty host": b"GET / HTTP/1.1\r\nhost:\r\n\r\n",
    "an IPv6 host": b"GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n",
    "HTTP/1.0 without a host": b"GET / HTTP/1.0\r\n\r\n",
    "a length": HOST + b"content-length: 18 \r\n\r\n",
    "chunks": HOST + b"transfer-encoding: Chunked\r\n\r\n",
    "the absolute form": b"GET http://a@X:80/b HTTP/1.1\r\nhost: x:80\r\n\r\n",
    "an upgrade": HOST + b"connection: Upgrade\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\n",
    "text like an upgrade": HOST + b"x-a: upgrade: h2c\r\n\r\n",
}


def read_head(data: bytes, cuts: list[int]) -> tuple[RequestHead | None, bytes] | str:
    """The head and the bytes after it, or the name of the error, of `data` cut at `cuts`."""
    reader = HeadReader(16_384)
    edges = [0, *cuts, len(data)]
    try:
        for start, end in itertools.pairwise(edges):
            head, rest = reader.feed(data[start:end])
            if head is not None:
                return head, rest + data[end:]
    except HttpError as error:
        return type(error).__name__
    return None, b""


@pytest.mark.parametrize("head", REFUSED.values(), ids=REFUSED.keys())
def test_a_head_that_a_proxy_could_read_differently_is_refused_and_not_ordinary(head: bytes) -> None:
    assert read_head(head, []) == "MalformedRequest"
    assert read_ordinary_head(head, 16_384) is None


@pytest.mark.parametrize("head", PASSED.values(), ids=PASSED.keys())
def test_the_body_begins_where_the_head_ends(head: bytes) -> None:
    found = read_head(head + b"body: \r\n\r\n", [])
    assert isinstance(found, tuple)
    assert found[0] is not None
    assert found[1] == b"body: \r\n\r\n"


HEADS = [
    *REFUSED.values(),
    *(head + b"body" for head in PASSED.values()),
    *(path.read_bytes() for path in sorted(CORPUS.glob("*.http"))),
]


@pytest.mark.parametrize("data", HEADS)
def test_where_a_head_is_cut_does_not_matter(data: bytes) -> None:
    whole = read_head(data, [])
    assert read_head(data, list(range(1, len(data)))) == whole
    for cut in range(1, len(data)):
        assert read_head(data, [cut]) == whole


def test_the_parts_of_a_head() -> None:
    found = read_head(HOST + b"X-A:  b \r\nconnection: close\r\nexpect: 100-continue\r\n\r\n", [])
    assert isinstance(found, tuple)
    head = found[0]
    assert head is not None
    assert (head.method, head.path, head.query, head.version) == ("POST", b"/a", b"b=c", "1.1")
    assert head.headers[:2] == [(b"host", b"x"), (b"x-a", b"b ")]
    assert head.index == {name: value.strip() for name, value in head.headers}
    assert (head.content_length, head.keeps_alive, head.expects_continue) == (0, False, True)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://x/a?b", b"/a", b"b"),
        (b"http://x", b"/", b""),
        (b"HTTPS://x?b", b"/", b"b"),
        (b"/http://y/", b"/http://y/", b""),
        (b"/?http://y/", b"/", b"http://y/"),
    ],
)
def test_a_target_in_absolute_form_has_the_path_of_the_other_form(
    target: bytes, path: bytes, query: bytes
) -> None:
    head, _ = HeadReader(16_384).feed(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert head is not None
    assert (head.path, head.query) == (path, query)


@pytest.mark.parametrize(
    ("headers", "keeps_alive"),
    [
        (b"", True),
        (b"connection: closed\r\n", True),
        (b"connection: keep-alive, x\r\n", True),
        (b"connection: x, CLOSE \t\r\n", False),
        (b"connection: keep-alive\r\nconnection: close\r\n", False),
        (b"connection: close\r\nconnection: keep-alive\r\n", False),
        (b"connection: close,\r\n", False),
    ],
)
def test_one_close_in_all_connection_headers_ends_the_connection(headers: bytes, keeps_alive: bool) -> None:
    head, _ = HeadReader(16_384).feed(HOST + headers + b"\r\n")
    assert head is not None
    assert head.keeps_alive is keeps_alive


def test_the_size_and_the_number_of_headers_are_limited() -> None:
    filled = HOST + b"x-a: " + b"a" * 2_000
    with pytest.raises(HeadersTooLarge):
        HeadReader(1_024).feed(filled)
    with pytest.raises(HeadersTooLarge):
        HeadReader(1_024).feed(filled + b"\r\n\r\n")
    with pytest.raises(HeadersTooLarge):
        HeadReader(1_000_000).feed(HOST + b"a:b\r\n" * (MAX_HEADERS + 1))


def test_the_index_has_the_first_header_of_each_name() -> None:
    found = read_head(HOST + b"X-A: b\r\nx-c: d\r\nx-a: e\r\n\r\n", [])
    assert isinstance(found, tuple)
    assert found[0] is not None
    assert found[0].index == {b"host": b"x", b"x-a": b"b", b"x-c": b"d"}


REQUEST_LINES = st.sampled_from(
    [
        *(
            "POST /v1/embeddings HTTP/1.1",
            "GET //a/../b-c_d. HTTP/1.1",
            "PUT / HTTP/1.1",
            "GET /a?b HTTP/1.1",
        ),
        *(
            "GET / HTTP/1.0",
            "GET /%41 HTTP/1.1",
            "POST a HTTP/1.1",
            "GET  / HTTP/1.1",
            "GET http://x/ HTTP/1.1",
        ),
    ]
)
NAMES = st.sampled_from(
    [
        *("Host", "content-length", "Content-Type", "connection", "transfer-encoding", "expect", "upgrade"),
        *("proxy-connection", "x_y", "x y", "x-y", "authorization", "", "\u00e4"),
    ]
)
VALUES = st.one_of(
    st.sampled_from(["x", "x:80", "[::1]", "x/y", "5", "007", "+5", "9" * 30, "keep-alive", "Keep-Alive"])
    | st.sampled_from(
        ["close", "upgrade", "keep-alive, close", "chunked", "100-continue", "h2c", "", "a: b"]
    ),
    st.text(st.characters(max_codepoint=255), max_size=8),
)
LINES = st.builds("{}{}{}".format, NAMES, st.sampled_from([": ", ":", ":  ", " :", ":\t"]), VALUES)


@given(REQUEST_LINES, st.lists(LINES, max_size=6), st.booleans(), st.integers(20, 200))
def test_an_ordinary_head_is_read_as_the_parser_reads_it(
    request_line: str, lines: list[str], has_host: bool, max_bytes: int
) -> None:
    head = "\r\n".join([request_line, *["Host: x"] * has_host, *lines, "", "body\r\n\r\n"]).encode("latin-1")
    found = read_ordinary_head(head, max_bytes)
    if found is not None:
        assert found == HeadReader(max_bytes).feed(head)


def test_the_heads_of_clients_are_ordinary() -> None:
    assert read_ordinary_head(HOST + b"a:b\r\n" * (MAX_HEADERS + 1), 16_384) is None
    head = (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: a:80\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n"
    )
    found = read_ordinary_head(head + b"{}", 16_384)
    assert found is not None
    assert found[1] == b"{}"
    assert read_ordinary_head(head, len(head) - 1) is None
    assert read_ordinary_head(head[:-1], 16_384) is None
